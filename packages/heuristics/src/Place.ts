import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"

/**
 * Where a kernel runs: as a launch of its own, or as a phase of a persistent launch. That one has a workgroup on each processor, as large as the device allows, so each of its threads has
 * fewer registers than a processor has for a small workgroup, and no other workgroups hide its latencies.
 */
export type Place = "launch" | "phase"

/** Workgroups of a phase that run side by side in one of a launch, so that one has instructions while another one waits. */
const besideEachOther = 2

/** Threads of a phase's workgroup, at the most. */
export const phaseThreads = ({ maxWorkgroupThreads }: DeviceProfile): number =>
  Math.floor(maxWorkgroupThreads / besideEachOther)
