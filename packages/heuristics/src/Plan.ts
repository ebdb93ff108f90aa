import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import type * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"

/** The opts chosen so far and the resulting kernel. Illegal opts are skipped, so every list is legal. */
export class Plan {
  readonly opts: Array<Opt.Opt> = []
  kernel: UOp
  private readonly profile: DeviceProfile
  readonly legal: Postrange.Legal
  constructor(kernel: UOp, profile: DeviceProfile, legal: Postrange.Legal = Postrange.legal) {
    this.kernel = kernel
    this.profile = profile
    this.legal = legal
  }
  /** Adds the opt if it is legal and does anything; returns whether it was added. */
  try(opt: Opt.Opt): boolean {
    if (opt.amount <= 1) return false
    const next = this.legal(this.kernel, [opt], this.profile)
    if (next instanceof Postrange.IllegalOpt) return false
    this.kernel = next
    this.opts.push(opt)
    return true
  }
}
