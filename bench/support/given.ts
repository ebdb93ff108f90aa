/** What benchmarks are given as files. */
import { readFileSync } from "node:fs"
import type { DeviceProfile } from "../../packages/core-uop/src/DeviceProfile.ts"
import { ProfileFile, profileOf } from "../../packages/core-uop/src/ProfileFile.ts"
import { Schema } from "effect"

/** The device of a file, as `tg doctor --measure --out` writes it, if one is given. */
export const profileGiven = (file: string | undefined): DeviceProfile | undefined =>
  file === undefined
    ? undefined
    : profileOf(Schema.decodeUnknownSync(ProfileFile)(JSON.parse(readFileSync(file, "utf8"))))
