/** Grid barriers of persistent launches. */
import { meetingWords } from "@tg/core-uop/Phases"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import { bufferName } from "./access.ts"

/** The barriers of a kernel, in order. */
export const barriersOf = (linear: UOp): ReadonlyArray<UOp> => linear.src.filter(({ op }) => op === "GRID_BARRIER")

/** Polls between two checks of whether another workgroup has given up. */
const rarely = 64

/**
 * The barrier as a function. Its counter is monotonic within a launch, so one word is enough: all workgroups have arrived when it
 * reaches `all`. A workgroup that polls too often gives up and says so; whoever sees that leaves the launch (false). Atomic stores in
 * front of the barrier are visible to atomic loads behind it: WGSL does not promise that, a litmus test of the device does.
 */
export const functions = (linear: UOp): ReadonlyArray<string> => {
  const [first] = barriersOf(linear)
  if (first === undefined) return []
  const { spins } = argOf(first, "GRID_BARRIER")
  const name = bufferName(first.src[0]!)
  const arrived = `${name}[${meetingWords.arrived}]`
  const gaveUp = `${name}[${meetingWords.gaveUp}]`
  return [
    "var<workgroup> has_left: u32;",
    `fn meet(thread: u32, all: u32) -> bool {
  storageBarrier();
  workgroupBarrier();
  if (thread == 0u) {
    atomicAdd(&${arrived}, 1u);
    var looks = 0u;
    while (atomicLoad(&${arrived}) < all) {
      if (looks % ${rarely}u == 0u && atomicLoad(&${gaveUp}) != 0u) { break; }
      looks++;
      if (looks > ${spins}u) { atomicStore(&${gaveUp}, 1u); break; }
    }
    has_left = atomicLoad(&${gaveUp});
  }
  storageBarrier();
  return workgroupUniformLoad(&has_left) == 0u;
}`
  ]
}

/** The statement of a barrier: leaves the launch if not all workgroups arrive. */
export const wait = (linear: UOp, barrier: UOp): string => {
  const place = barriersOf(linear).indexOf(barrier)
  const { workgroups } = argOf(barrier, "GRID_BARRIER")
  return `if (!meet(local_invocation_id.x, ${(place + 1) * workgroups}u)) { return; }`
}

/** The end of the kernel: the last workgroup to arrive resets the counter for the next launch, when no other one polls it any more. */
export const leave = (linear: UOp): ReadonlyArray<string> => {
  const barriers = barriersOf(linear)
  const [first] = barriers
  if (first === undefined) return []
  const { workgroups } = argOf(first, "GRID_BARRIER")
  const arrived = `${bufferName(first.src[0]!)}[${meetingWords.arrived}]`
  const last = (barriers.length + 1) * workgroups - 1
  return [
    `  if (local_invocation_id.x == 0u && atomicAdd(&${arrived}, 1u) == ${last}u) { atomicStore(&${arrived}, 0u); }`
  ]
}
