/** A page at `/`: a folder of files, with a policy that lets it run nothing but its own code, and talk to nobody else. */
import { Effect } from "effect"
import { HttpRouter, HttpServerResponse, HttpStaticServer } from "effect/http"

/** What the page may do: its own scripts and styles from files, requests to this server, and no frames around it. */
export const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types dompurify"
].join("; ")

/** Serves the files of a folder, `index.html` at `/`. */
export const layer = (folder: string) =>
  HttpRouter.use(Effect.fnUntraced(function*(router) {
    const files = yield* HttpStaticServer.make({ root: folder, cacheControl: "no-cache" })
    yield* router.add(
      "GET",
      "/*",
      // what is no file is told as everything else that is not there
      files.pipe(
        Effect.map(HttpServerResponse.setHeaders({
          "content-security-policy": policy,
          "cross-origin-opener-policy": "same-origin",
          "permissions-policy": "camera=(), geolocation=(), microphone=()"
        }))
      )
    )
  }))
