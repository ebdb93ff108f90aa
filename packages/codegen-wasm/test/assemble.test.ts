/** The assembler: the bytes that wabt gives, and what it says of texts that it does not take. */
import { assert, describe, it } from "@effect/vitest"
import { assemble } from "../src/internal/assemble.ts"
import { type Immediate, instructions } from "../src/internal/opcodes.ts"
import { wabtBytes } from "./support/wabt.ts"

/** A text for each kind of what stands behind an instruction. */
const samples: Readonly<Record<Immediate, ReadonlyArray<string>>> = {
  none: [""],
  local: ["1", "$y"],
  function: ["0", "$f"],
  label: ["0", "$outer"],
  zero: [""],
  zeros: [""],
  lane: ["1"],
  lanes: ["0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 31"],
  i32: ["0", "-1", "63", "64", "-64", "-65", "2147483647", "-2147483648", "4294967295", "0xff_ff", "+7"],
  i64: ["0", "-9223372036854775808", "18446744073709551615", "0x123456789abcdef"],
  f32: ["0", "-0", "1.5", "1e-45", "3.4028234663852886e+38", "inf", "-inf", "nan", "-nan", "16777217", "1_0.5_0"],
  f64: ["0", "-0", "0.1", "5e-324", "-inf", "nan"],
  v128: [
    "i8x16 0 1 2 3 -4 5 6 7 8 9 10 11 12 13 14 255",
    "i16x8 -1 2 3 4 5 6 7 0xffff",
    "i32x4 0 -1 2147483647 0x80000000",
    "i64x2 -1 2",
    "f32x4 0.25 -0 nan inf",
    "f64x2 0.1 -5"
  ],
  access: ["", "offset=0", "offset=128", "offset=4294967295", "align=1", "offset=3 align=1"],
  "access lane": ["1", "offset=300 0", "offset=7 align=1 0"]
}

const inFunction = (code: string): string =>
  `(module (import "env" "memory" (memory 1 2 shared)) (func $f (param $x i32) (local $y i32) (block $outer (loop ${code}))))`

const same = (text: string): void => assert.deepStrictEqual(assemble(text), wabtBytes(text), text)

describe("bytes", () => {
  it("are those of wabt for every instruction", () => {
    assert.isAbove(instructions.size, 450)
    for (const [name, { immediate }] of instructions) {
      for (const sample of samples[immediate]) {
        const atomic = name.includes("atomic") && sample.includes("align")
        // atomic accesses are aligned
        if (!atomic) same(inFunction(`(${name} ${sample})`))
      }
    }
  })

  it.each(Object.entries({
    "a memory of one thread": `(module (import "env" "memory" (memory 1)) (func (export "run")))`,
    "a memory with a bound": `(module (import "a" "b" (memory $m 3 70)))`,
    "nothing": "(module)",
    "comments": "(module ;; one\n(func (nop)) ;; two\n)",
    "functions that call each other": `(module
      (func (export "run") (export "again") (param i32 i32) (param f32) (result i32) (call $late (local.get 1)))
      (func $late (param $a i32) (result i32) (i32.add (call $late (local.get $a)) (i32.const 1)))
      (func (param) (param $a i32) (result i32) (local.get $a)))`,
    "locals in runs": "(module (func (local i32 i32) (local $v v128) (local $f f32) (local $g f32) (local i32)))",
    "branches": `(module (func $f (param $n i32) (result i32)
      (block $out (result i32) (loop $in
        (br_if $in (local.get $n)) (br_if 1 (i32.const 5) (local.get $n)) (drop) (br $out (i32.const 3))) (i32.const 4))))`,
    "choices": `(module (func (param $c i32) (result f32)
      (if $x (local.get $c) (then (br $x))) (if (result f32) (i32.eqz (local.get $c)) (then (f32.const 1)) (else (f32.const 2)))))`,
    "the longest numbers": `(module (func ${"(nop)".repeat(300)} (drop (i32.const -123456789))))`
  }))("are those of wabt for %s", (_, text) => same(text))
})

const complaint = (text: string): string => {
  try {
    assemble(text)
    return "taken"
  } catch (error) {
    return (error as Error).message
  }
}

describe("errors", () => {
  it.each([
    ["(module (func\n(i32.foo)))", /line 2: no instruction is called i32.foo/],
    ["(module (func (local.get $x)))", /no local is called \$x/],
    ["(module (func (call $x)))", /no function is called \$x/],
    ["(module (func (br $x)))", /no block around is called \$x/],
    ["(module (func (param $x i32) (local $x f32)))", /two of local \$x/],
    ["(module (memory 1))", /memory is none of the fields/],
    ["(module (data \"x\"))", /data is none of the fields/],
    [`(module (import "a" "b" (func)))`, /imports \(memory/],
    ["(module (func nop))", /nop: write instructions in parentheses/],
    ["(module (func (i32.const 4294967296)))", /does not fit 32 bits/],
    ["(module (func (i32.const x)))", /x stands where an integer belongs/],
    ["(module (func (f32.const 0x1p3)))", /0x1p3 stands where a decimal number/],
    ["(module (func (i32.const)))", /missing/],
    ["(module (func (i32.load offset=-1 (i32.const 0))))", /-1 is not from 0/],
    ["(module (func (i32.load align=3 (i32.const 0))))", /power of two/],
    ["(module (func (v128.const i3x4 0)))", /no shape/],
    ["(module (func (param i31)))", /i31 is no type/],
    ["(module (func (if (i32.const 1))))", /an if has one \(then/],
    ["(module (func (block (result i32 i32))))", /one result or none/],
    ["(module (func)", /line 1: a \( is not closed/],
    ["(module))", /closes nothing/],
    ["(module (; comment ;))", /comments begin with ;;/],
    ["(func)", /one \(module/],
    ["", /one \(module/]
  ])("of %j", (text, message) => assert.match(complaint(text), message))
})
