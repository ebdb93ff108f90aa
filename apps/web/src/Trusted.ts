/** Addresses of scripts that the page may run: its own. */

interface Policy {
  readonly createScriptURL: (url: string) => string
}
type Factory = { readonly createPolicy: (name: string, rules: Policy) => Policy }

const own = (url: string): string => {
  const { href, origin } = new URL(url, document.baseURI)
  if (origin !== location.origin) throw new TypeError(`${href} is no script of this page`)
  return href
}

// where a browser has no such policies, a string is enough
const { trustedTypes } = globalThis as { readonly trustedTypes?: Factory }
const policy = trustedTypes?.createPolicy("tg", { createScriptURL: own })

/** A script of this page, relative to it, as the browser wants to be given it. */
export const script = (url: string): string => policy?.createScriptURL(url) ?? own(url)
