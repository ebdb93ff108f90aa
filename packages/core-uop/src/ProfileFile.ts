/** Device profiles as JSON: what a measurement writes, and what people hand to commands. */
import { Schema } from "effect"
import type { DeviceProfile, Quantities } from "./DeviceProfile.ts"

const Positive = Schema.Finite.check(Schema.isGreaterThan(0))
const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

const quantity = Schema.optionalKey(Positive)
const quantities: { readonly [Q in keyof Quantities]: typeof quantity } = {
  processors: quantity,
  residentThreads: quantity,
  residentWorkgroups: quantity,
  residentBytes: quantity,
  registerBytes: quantity,
  ownCacheBytes: quantity,
  cacheBytes: quantity,
  cachedPerByte: quantity,
  operationsPerByte: quantity,
  loadMicros: quantity,
  cachedLoadMicros: quantity,
  stageMicros: quantity,
  barrierMicros: quantity,
  subgroupReduceMicros: quantity,
  encodeMicros: quantity,
  gridBarrierMicros: quantity
}

/**
 * A profile in a file. Without `subgroupSize` the device has no subgroups of one known size, without `packedDot` no such instruction;
 * quantities that are left out are unknown.
 */
export const ProfileFile = Schema.Struct({
  name: Schema.String,
  adapter: Schema.optionalKey(Schema.String),
  kind: Schema.Literals(["gpu", "cpu"]),
  maxWorkgroupThreads: Count,
  maxWorkgroupBytes: Count,
  maxGrid: Count,
  maxStorageBuffers: Count,
  maxBindingBytes: Count,
  maxBufferBytes: Count,
  memoryBytes: Schema.optionalKey(Positive),
  subgroupSize: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThan(1))),
  packedDot: Schema.optionalKey(Schema.Boolean),
  matrixUnits: Schema.optionalKey(Schema.Boolean),
  halfOperations: quantity,
  cacheLineBytes: quantity,
  saturatingThreads: Count,
  dispatchMicros: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
  bytesPerMicro: Positive,
  ...quantities,
  gridBarrierHolds: Schema.optionalKey(Schema.Boolean),
  gridBarrierWorkgroups: Schema.optionalKey(Count)
})

/** The profile that a file says. */
export const profileOf = (read: typeof ProfileFile.Type): DeviceProfile => ({
  ...read,
  subgroupSize: read.subgroupSize,
  packedDot: read.packedDot ?? false
})

/** A profile as a file says it: without what is not known. */
export const ofProfile = (profile: DeviceProfile): typeof ProfileFile.Encoded =>
  Schema.decodeUnknownSync(ProfileFile)(
    Object.fromEntries(Object.entries(profile).filter(([, value]) => value !== undefined))
  )
