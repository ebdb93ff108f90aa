/** Reverse-mode differentiation: a sweep from the results to the inputs, over each node once. */
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, slotOf, type UOp } from "@tg/core-uop/UOp"
import { resultOf } from "@tg/core-uop/View"
import * as Program from "@tg/tensor/Program"
import { param, Tensor } from "@tg/tensor/Tensor"
import { gradientOf } from "../Attached.ts"
import { fail } from "../GradError.ts"
import { parameterOf, pure, scope, sourcesOf } from "./pure.ts"
import { none, type Rules } from "../Rules.ts"
import { look, place, placesOf, slotsWrittenBy, writtenOf } from "./storage.ts"

/** A value whose gradient is known. */
export interface Root {
  readonly node: UOp
  readonly gradient: Tensor
}

/** The gradient of a body, memoised for all of its calls. */
interface BodyGradient {
  /** The numbers of the arguments that have one. */
  readonly slots: ReadonlyArray<number>
  readonly gradients: ReadonlyArray<UOp>
  /** The numbers of the parameters that it reads. */
  readonly read: ReadonlySet<number>
}

/** The gradients of the `inputs` that the roots depend on. The sweep stops at inputs. */
export const sweep = (
  roots: ReadonlyArray<Root>,
  inputs: ReadonlyArray<UOp>,
  rules: Rules,
  bodies: Map<string, BodyGradient> = new Map()
): ReadonlyMap<UOp, Tensor> => new Sweep(inputs, rules, bodies).run(roots)

class Sweep {
  private readonly inputs: ReadonlySet<UOp>
  private readonly rules: Rules
  private readonly bodies: Map<string, BodyGradient>
  /** Nodes that depend on an input. */
  private readonly active = new Set<UOp>()
  private readonly gradients = new Map<UOp, Tensor>()
  /** By call: values of its body, with their gradients in this scope. */
  private readonly inCalls = new Map<UOp, Map<UOp, Tensor>>()

  constructor(inputs: ReadonlyArray<UOp>, rules: Rules, bodies: Map<string, BodyGradient>) {
    this.inputs = new Set(inputs)
    this.rules = rules
    this.bodies = bodies
  }

  run(roots: ReadonlyArray<Root>): ReadonlyMap<UOp, Tensor> {
    const nodes = scope(roots.map(({ node }) => node), this.inputs)
    for (const node of nodes) {
      const isActive = this.inputs.has(node) ||
        (this.rules.get(node.op) !== "stop" && sourcesOf(node).some((s) => this.active.has(s)))
      if (isActive) this.active.add(node)
    }
    for (const { gradient, node } of roots) this.add(node, gradient)
    for (const node of nodes.toReversed()) if (!this.inputs.has(node)) this.through(node)
    return this.gradients
  }

  private add(node: UOp, gradient: Tensor | undefined): void {
    if (gradient === undefined || !this.active.has(node)) return
    const known = this.gradients.get(node)
    this.gradients.set(node, known === undefined ? gradient : known.add(gradient))
  }

  private addInCall(call: UOp, value: UOp, gradient: Tensor): void {
    const values = this.inCalls.get(call) ?? new Map<UOp, Tensor>()
    this.inCalls.set(call, values)
    const known = values.get(value)
    values.set(value, known === undefined ? gradient : known.add(gradient))
  }

  private through(node: UOp): void {
    if (node.op === "CALL") return this.call(node)
    const gradient = this.gradients.get(node)
    if (gradient === undefined) return
    if (node.op === "AFTER") return this.storage(node, gradient)
    if (node.op === "GETTUPLE") {
      const { call, value } = resultOf(node)
      return this.addInCall(call, value, gradient)
    }
    const row = this.rules.get(node.op)
    if (row === undefined) {
      return fail(
        node.op,
        `the gradient through ${node.op} ${Shape.print(Shape.of(node))}`,
        "no rule for it in the table",
        `pass rules with a row for it: new Map([...Rules.standard, ["${node.op}", rule]])`
      )
    }
    if (row === "stop") return
    const known = node.op === "REDUCE" ? gradient.contiguous() : gradient
    row(node, known).forEach((g, i) => this.add(node.src[i]!, g))
  }

  /** A written value gets the gradient of its place, the contents before it that of the rest. */
  private storage(node: UOp, gradient: Tensor): void {
    const { before, call, stores, view } = writtenOf(node)
    let rest: Tensor | undefined = place(view, gradient)
    if (call !== undefined) {
      const { effect, slot } = call
      const { body, call: owner, value: inner } = resultOf(effect)
      const argument = parameterOf(body, slot, owner.src[1 + slot]!)
      return this.addInCall(owner, node.arena.make("AFTER", argument.dtype, [argument, inner]), rest)
    }
    for (const store of stores) {
      this.add(store.value, look(store.view, rest!))
    }
    for (const store of stores) {
      const places = placesOf(store.view, node.arena)
      rest = places === undefined || rest === undefined ? undefined : places.where(0, rest)
    }
    this.add(before, rest)
  }

  private call(node: UOp): void {
    const values = this.inCalls.get(node)
    if (values === undefined) return
    const body = node.src[0]!
    const own = gradientOf(body)
    if (own !== undefined) return this.givenCall(node, values)
    if (body.src.some(({ op }) => op === "CUSTOM")) {
      return fail(
        "CUSTOM",
        `the gradient through the kernel ${argOf(node, "CALL").name}`,
        "a kernel written by hand without one",
        "call it with Attached.custom, which takes its gradient"
      )
    }
    this.bodyCall(node, values)
  }

  /** A call with a custom gradient. */
  private givenCall(node: UOp, values: ReadonlyMap<UOp, Tensor>): void {
    const { arena } = node
    const body = node.src[0]!
    const args = node.src.slice(1).map((arg) => new Tensor(arg))
    const results = body.src.flatMap((value, i) => {
      const result = arena.make("GETTUPLE", value.dtype, [node], i)
      if (value.dtype !== DType.none) return [{ result: new Tensor(result), value }]
      return slotsWrittenBy(result).map((slot) => {
        const parameter = parameterOf(body, slot, args[slot]!.node)
        return {
          result: Program.after(args[slot]!, [new Tensor(result)]),
          value: arena.make("AFTER", parameter.dtype, [parameter, value])
        }
      })
    })
    const gradients = results.map(({ result, value }) => values.get(value) ?? none(result.node))
    const made = gradientOf(body)!({ args, results: results.map(({ result }) => result), gradients })
    made.forEach((g, slot) => {
      const arg = args[slot]
      if (g === undefined || arg === undefined) return
      if (g.dtype !== DType.f32 || !Shape.equal(g.shape, arg.shape)) {
        const found = `${DType.print(g.dtype)} ${Shape.print(g.shape)}`
        const wanted = `f32 ${Shape.print(arg.shape)} for argument ${slot}`
        fail(`call ${argOf(node, "CALL").name}`, wanted, found, "return gradients of the arguments' shapes")
      }
      this.add(arg.node, g)
    })
  }

  /** A call of the body's gradient: it takes the arguments and the gradients of the results. */
  private bodyCall(node: UOp, values: ReadonlyMap<UOp, Tensor>): void {
    const args = node.src.slice(1).map((arg) => new Tensor(arg))
    const wanted = [...args.keys()].filter((slot) => this.active.has(args[slot]!.node))
    const roots = [...values.keys()]
    const given = [...args, ...values.values()]
    const key = [node.src[0]!.id, ...roots.map(({ id }) => id), "of", ...wanted].join()
    const made = this.bodies.get(key) ?? this.bodyGradient(roots, given, { args: args.length, wanted })
    this.bodies.set(key, made)
    if (made.slots.length === 0) return
    // arguments that the body does not read are not passed: they may be storage that is written in between
    const passed = given.map((arg, slot) => made.read.has(slot) ? arg : given[args.length]!)
    const results = Program.call(
      `${argOf(node, "CALL").name}_grad`,
      passed,
      () => made.gradients.map((g) => new Tensor(g))
    )
    made.slots.forEach((slot, i) => this.add(args[slot]!.node, results[i]))
  }

  private bodyGradient(
    values: ReadonlyArray<UOp>,
    given: ReadonlyArray<Tensor>,
    { args, wanted }: { readonly args: number; readonly wanted: ReadonlyArray<number> }
  ): BodyGradient {
    const params = given.map(({ arena, dtype, shape }, slot) => param(arena, slot, { shape, dtype }))
    const roots = pure(values).map((node, i): Root => ({ node, gradient: params[args + i]! }))
    const found = sweep(roots, wanted.map((slot) => params[slot]!.node), this.rules, this.bodies)
    const slots = wanted.filter((slot) => found.has(params[slot]!.node))
    const gradients = slots.map((slot) => found.get(params[slot]!.node)!.node)
    return { slots, gradients, read: new Set(scope(gradients).filter((n) => n.op === "PARAM").map(slotOf)) }
  }
}
