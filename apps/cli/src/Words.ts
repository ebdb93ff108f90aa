/** What people read: numbers with their nouns, and the operating system's errors. */

/** `1 token`, `2 tokens` */
export const count = (n: number, noun: string, nouns = `${noun}s`): string => `${n} ${n === 1 ? noun : nouns}`

const codes: Readonly<Record<string, string>> = {
  EACCES: "permission denied",
  EBADF: "it is not open for that",
  EBUSY: "it is in use",
  EDQUOT: "the quota of the disk is used up",
  EEXIST: "it exists already",
  EFBIG: "it would be larger than files may be here (ulimit -f, or the file system)",
  EIO: "the disk failed",
  EISDIR: "it is a folder",
  ELOOP: "its symbolic links lead in a circle",
  EMFILE: "too many files are open",
  ENAMETOOLONG: "the name is too long",
  ENOENT: "there is no such file or folder",
  ENOMEM: "there is not enough memory",
  ENOSPC: "no space is left on the disk",
  ENOTDIR: "a part of the path is no folder",
  ENXIO: "no device is there",
  EPERM: "permission denied",
  EROFS: "the file system is read-only",
  ETXTBSY: "it is a program that runs"
}

/** Why something failed, in words: of the operating system's code where one is behind the error, else its message. */
export const cause = (error: { readonly message: string }): string => {
  let inner: unknown = error
  // an error that wraps one has it as `reason` or as `cause`
  for (let depth = 0; depth < 8 && typeof inner === "object" && inner !== null; depth++) {
    if ("code" in inner && typeof inner.code === "string") return codes[inner.code] ?? `${inner.code}: ${error.message}`
    inner = "reason" in inner && typeof inner.reason === "object" ? inner.reason : "cause" in inner ? inner.cause : null
  }
  return error.message
}
