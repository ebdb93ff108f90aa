/** Kernels as plain JavaScript: a renderer, and the device that runs what it renders. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { DType } from "@tg/core-uop/DType"
import { mandatory, type Op, type ReduceOp } from "@tg/core-uop/Op"
import { type Program, Renderer, type RendererCaps, RenderError, signature } from "@tg/core-uop/Program"
import { isAccumulating, type UOp, varArg } from "@tg/core-uop/UOp"
import { Device, DeviceError } from "@tg/runtime/Device"
import * as HostDevice from "@tg/runtime/HostDevice"
import { Effect, Layer } from "effect"

/** No grid and no vectors: every loop of a kernel is a loop of its code, and every value is a number. */
export const caps: RendererCaps = {
  target: "javascript",
  hasGrid: false,
  lanes: [1],
  ops: new Set<Op>([...mandatory, "NEG", "MAX", "MIN", "EXP2", "LOG2", "SIN"]),
  subgroupSize: undefined
}

/** What the compiler plans with: one thread, no memory that threads share. */
export const profile: DeviceProfile = {
  name: "javascript",
  kind: "cpu",
  maxWorkgroupThreads: 1,
  maxWorkgroupBytes: 0,
  maxGrid: 2 ** 31 - 1,
  maxStorageBuffers: 64,
  maxBindingBytes: 2 ** 32,
  maxBufferBytes: 2 ** 32,
  subgroupSize: undefined,
  packedDot: false,
  saturatingThreads: 1,
  dispatchMicros: 1,
  bytesPerMicro: 1000
}

/** Rounds an expression to its type. Integers are kept signed or unsigned as their type is; a bool is 0 or 1. */
const rounded = ({ scalar }: DType, code: string): string =>
  scalar === "f32" ? `Math.fround(${code})` : scalar === "u32" ? `(${code}) >>> 0` : `(${code}) | 0`

const cast = (from: DType, to: DType, a: string): string => {
  if (to.scalar === "bool") return `+(${a} !== 0)`
  if (from.scalar !== "f32" || to.scalar === "f32") return rounded(to, a)
  // toward zero, and no further than the type goes; NaN gives 0
  const [low, high] = to.scalar === "u32" ? [0, 2 ** 32 - 1] : [-(2 ** 31), 2 ** 31 - 1]
  return rounded(to, `Math.max(${low}, Math.min(${high}, ${a}))`)
}

/** The bits pass through one word of memory, which `view` names by type. */
const view = ({ scalar }: DType): string => scalar === "f32" ? "F" : scalar === "u32" ? "U" : "I"
const bitcast = (from: DType, to: DType, a: string): string => `(${view(from)}[0] = ${a}, ${view(to)}[0])`

const infix: Partial<Record<Op, string>> = { ADD: "+", SUB: "-", FDIV: "/", AND: "&", OR: "|", XOR: "^", SHL: "<<" }
const compared: Partial<Record<Op, string>> = { CMPLT: "<", CMPEQ: "===", CMPNE: "!==" }
const calls: Partial<Record<Op, string>> = {
  SQRT: "Math.sqrt",
  TRUNC: "Math.trunc",
  LOG2: "Math.log2",
  SIN: "Math.sin"
}

/** An elementwise operation on values that are already code, or nothing where this renderer has not declared it. */
const elementwise = (op: Op, dtype: DType, from: DType, [a, b, c]: ReadonlyArray<string>): string | undefined => {
  if (infix[op] !== undefined) return rounded(dtype, `${a} ${infix[op]} ${b}`)
  if (compared[op] !== undefined) return `+(${a} ${compared[op]} ${b})`
  if (calls[op] !== undefined) return rounded(dtype, `${calls[op]}(${a})`)
  switch (op) {
    case "CAST":
      return cast(from, dtype, a!)
    case "BITCAST":
      return bitcast(from, dtype, a!)
    case "MUL":
      return rounded(dtype, dtype.scalar === "f32" ? `${a} * ${b}` : `Math.imul(${a}, ${b})`)
    case "FLOORDIV":
      return rounded(dtype, `Math.floor(${a} / ${b})`) // by zero: 0, for infinity and NaN have no integer
    case "FLOORMOD":
      return rounded(dtype, `${a} - Math.floor(${a} / ${b}) * ${b}`)
    case "SHR":
      return dtype.scalar === "u32" ? `${a} >>> ${b}` : `${a} >> ${b}`
    case "MAX":
      return `${a} < ${b} ? ${b} : ${a}`
    case "MIN":
      return `${b} < ${a} ? ${b} : ${a}`
    case "NEG":
      return rounded(dtype, `-${a}`)
    case "EXP2":
      return rounded(dtype, `2 ** ${a}`)
    case "WHERE":
      return `${a} ? ${b} : ${c}`
    default:
      return undefined
  }
}

const combine = (op: ReduceOp, { dtype }: UOp, a: string, b: string): string => {
  if (dtype.scalar === "bool") return op === "ADD" || op === "MAX" ? `${a} | ${b}` : `${a} & ${b}`
  return elementwise(op, dtype, dtype, [a, b])!
}

const literal = ({ arg, dtype }: UOp): string => {
  const value = dtype.scalar === "f32" ? Math.fround(Number(arg)) : Number(arg)
  return `(${Object.is(value, -0) ? "-0" : value})`
}

/** The statements of a linear kernel. Each value has a name of its own, declared where it is computed. */
const statements = (linear: UOp, vars: ReadonlyArray<string>): ReadonlyArray<string> => {
  const names = new Map<UOp, string>()
  const of = (node: UOp): string => names.get(node)!
  const statement = (node: UOp, at: number): string => {
    const define = (keyword: string, code: string): string => {
      names.set(node, `x${at}`)
      return `${keyword} x${at} = ${code}`
    }
    const [first, second] = node.src
    const access = node.op === "LOAD" || node.op === "STORE" ? first!.src : []
    const place = () => `${of(access[0]!)}[${of(access[1]!)}]`
    switch (node.op) {
      case "CONST":
        return names.set(node, literal(node)) && ""
      case "VAR":
        return names.set(node, `v${vars.indexOf(varArg(node).name)}`) && ""
      case "PARAM":
        return names.set(node, `${view(node.dtype)}${(node.arg as { readonly slot: number }).slot}`) && ""
      case "INDEX":
        return ""
      case "REG":
        return define("let", of(first!))
      case "ACCUMULATE":
        return `${of(first!)} = ${combine((node.arg as { readonly op: ReduceOp }).op, first!, of(first!), of(second!))}`
      case "RANGE":
        names.set(node, `i${at}`)
        return `for (let i${at} = 0; i${at} < ${of(first!)}; i${at}++) {`
      case "IF":
        return `if (${of(first!)}) {`
      case "END":
      case "ENDIF":
        return "}"
      case "LOAD":
        return define("const", access[2] === undefined ? place() : `${of(access[2])} ? ${place()} : 0`)
      case "STORE":
        return `${access[2] === undefined ? "" : `if (${of(access[2])}) `}${place()} ${
          isAccumulating(node) ? "+=" : "="
        } ${of(second!)}`
      default: {
        const code = elementwise(node.op, node.dtype, first?.dtype ?? node.dtype, node.src.map(of))
        if (code === undefined) {
          throw new RenderError({ kernel: "", message: `${node.op} is not an instruction of ${caps.target}` })
        }
        return define("const", code)
      }
    }
  }
  return linear.src.map(statement).filter((line) => line !== "")
}

/** The body of a function that makes the kernel: a function of its arguments, as words, and its variables. */
export const text = (linear: UOp): string => {
  const { bindings, vars } = signature(linear)
  const views = bindings.map(({ slot }) =>
    `const F${slot} = new Float32Array(b${slot}.buffer, b${slot}.byteOffset, b${slot}.length), ` +
    `I${slot} = new Int32Array(b${slot}.buffer, b${slot}.byteOffset, b${slot}.length), U${slot} = b${slot}`
  )
  const parameters = [...bindings.map(({ slot }) => `b${slot}`), ...vars.map((_, i) => `v${i}`)]
  return [
    "const F = new Float32Array(1), I = new Int32Array(F.buffer), U = new Uint32Array(F.buffer)",
    `return (${parameters.join(", ")}) => {`,
    ...views,
    ...statements(linear, vars),
    "}"
  ].join("\n")
}

/** Renders linear kernels. */
export const renderer: Layer.Layer<Renderer> = Layer.succeed(Renderer, {
  caps,
  render: (name, linear) =>
    Effect.try({
      try: (): Program => ({ name, target: caps.target, code: text(linear), ...signature(linear) }),
      catch: (error) =>
        new RenderError({ kernel: name, message: `${name}: ${error instanceof Error ? error.message : String(error)}` })
    })
})

const load = ({ code, name, target, vars }: Program): HostDevice.Run | DeviceError => {
  if (target !== caps.target || typeof code !== "string") {
    return HostDevice.bad(`${name} is a program for ${target}; this device runs ${caps.target}`)
  }
  try {
    const kernel = (new Function(code) as () => (...args: ReadonlyArray<Uint32Array | number>) => void)()
    return (args, values) => kernel(...args, ...vars.map((variable) => values[variable]!))
  } catch (error) {
    return new DeviceError({ reason: "ProgramRejected", message: `${name}: ${String(error)}` })
  }
}

/** A device whose memory are arrays of JavaScript. */
export const device: Layer.Layer<Device> = Layer.sync(Device, () => HostDevice.make({ profile, load }))
