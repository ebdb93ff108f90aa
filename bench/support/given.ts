/** What benchmarks are given. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { readFileSync } from "node:fs"
import type { DeviceProfile } from "../../packages/core-uop/src/DeviceProfile.ts"
import { ProfileFile, profileOf } from "../../packages/core-uop/src/ProfileFile.ts"
import type { Mode } from "../../packages/jit/src/Persistent.ts"
import * as Devices from "../../packages/node/src/Devices.ts"
import { Layer, Schema } from "effect"

/** The device of a file, as `tg doctor --measure --out` writes it, if one is given. */
export const profileGiven = (file: string | undefined): DeviceProfile | undefined =>
  file === undefined
    ? undefined
    : profileOf(Schema.decodeUnknownSync(ProfileFile)(JSON.parse(readFileSync(file, "utf8"))))

/** The device that was asked for, and files: `--device`, `--profile`, `--persistent`. */
export const deviceGiven = (
  given: { readonly device: string; readonly persistent?: string; readonly profile?: string | undefined }
) =>
  Layer.merge(
    Devices.layer(given.device as Devices.Choice, {
      persistent: given.persistent as Mode | undefined,
      profiles: { given: profileGiven(given.profile) }
    }),
    NodeServices.layer
  )
