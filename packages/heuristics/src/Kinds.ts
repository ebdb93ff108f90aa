/** The kinds of devices and kernels that are treated apart. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { toposort, type UOp } from "@tg/core-uop/UOp"

/** A device with that many threads has registers for a large tile in each, and a compiler that takes long code. */
const manyThreads = 2 ** 16

/** Whether it is one for straight code and many registers. */
export const isLargeDevice = (profile: DeviceProfile): boolean => profile.saturatingThreads >= manyThreads

/** Whether a kernel, or a part of one, has products of bytes. */
export const isInt8 = (kernel: UOp): boolean => toposort(kernel).some((n) => n.op === "DOT4I8")
