/** Many expressions at once: classes of equal nodes over classes, congruent and hash-consed. */
import type { UOp } from "@tg/core-uop/UOp"
import type { Analysis } from "./Analysis.ts"
import { type ClassId, type ENode, headOf, keyOf, type Term, withArgs } from "./ENode.ts"

/** Why two nodes are equal: a rule said so, or their arguments are. */
export type Reason = { readonly kind: "rule"; readonly rule: string } | { readonly kind: "congruence" }

/** A node of the proof forest: equal to `to`, for a reason. */
export interface Justified {
  readonly to: ClassId
  readonly reason: Reason
}

interface Canonical {
  readonly node: ENode
  /** Its key is made of what it is, and of its arguments. */
  readonly head: string
  readonly key: string
}

/** A node of a class, over classes, and its number. */
export interface Member {
  readonly id: ClassId
  readonly node: ENode
}

interface Class<F> {
  readonly nodes: Array<ClassId>
  readonly parents: Set<ClassId>
  facts: F
  /** When it last got a node. */
  changed: number
  /** Its members, as they were at that time. */
  listed: { readonly time: number; readonly members: ReadonlyArray<Member> } | undefined
}

const congruence: Reason = { kind: "congruence" }

/**
 * An e-graph whose classes know the facts `F`. Nodes are numbered as they are added; classes are found from any of their nodes.
 * After unions, `rebuild` restores congruence: equal operations on equal arguments are equal.
 */
export class EGraph<F> {
  readonly analysis: Analysis<F>
  /** Reads the programs that rules write. */
  read: (uop: UOp) => ClassId = () => {
    throw new Error("a rule wrote a program, and nobody said how to read it")
  }
  /** Nodes as they were added, by number. */
  private readonly added: Array<ENode> = []
  private readonly forms: Array<Canonical> = []
  private readonly leader: Array<ClassId> = []
  private readonly proof: Array<Justified | undefined> = []
  private readonly ofKey = new Map<string, ClassId>()
  private readonly exact = new Map<string, ClassId>()
  private readonly known = new Map<ClassId, Class<F>>()
  private readonly born: Array<number> = []
  private events = 0
  private stale: Array<ClassId> = []
  private grown: Array<ClassId> = []

  constructor(analysis: Analysis<F>) {
    this.analysis = analysis
  }

  /** A graph of the same nodes, classes and proofs that goes its own way. */
  clone(): EGraph<F> {
    const copy = new EGraph(this.analysis)
    copy.added.push(...this.added)
    copy.forms.push(...this.forms)
    copy.leader.push(...this.leader)
    copy.proof.push(...this.proof)
    copy.born.push(...this.born)
    copy.events = this.events
    copy.stale = [...this.stale]
    copy.grown = [...this.grown]
    for (const [key, id] of this.ofKey) copy.ofKey.set(key, id)
    for (const [key, id] of this.exact) copy.exact.set(key, id)
    for (const [id, { changed, facts, nodes, parents }] of this.known) {
      copy.known.set(id, { nodes: [...nodes], parents: new Set(parents), facts, changed, listed: undefined })
    }
    return copy
  }

  /** Numbers given to nodes. */
  get size(): number {
    return this.added.length
  }

  /** Counts what happens: nodes and unions. */
  get time(): number {
    return this.events
  }

  /** Whether a node, or a class that it has as argument, has got something since then: a rule may see more in it. */
  isNewSince(time: number, id: ClassId): boolean {
    return this.born[id]! > time || this.added[id]!.args.some((arg) => this.known.get(this.find(arg))!.changed > time)
  }

  /** The class of a node. */
  find(id: ClassId): ClassId {
    let root = id
    while (this.leader[root] !== root) root = this.leader[root]!
    for (let at = id; at !== root;) {
      const next = this.leader[at]!
      this.leader[at] = root
      at = next
    }
    return root
  }

  /** The classes, in the order of their first nodes. */
  classes(): ReadonlyArray<ClassId> {
    return [...this.known.keys()]
  }

  /** A node as it was added. */
  nodeOf(id: ClassId): ENode {
    return this.added[id]!
  }

  /** The different nodes of a class, over classes, with a number of each. */
  members(id: ClassId): ReadonlyArray<Member> {
    const own = this.known.get(this.find(id))!
    // rules look while nothing changes
    if (own.listed?.time === this.events) return own.listed.members
    const members = this.membersNow(own)
    own.listed = { time: this.events, members }
    return members
  }

  private membersNow(own: Class<F>): ReadonlyArray<Member> {
    if (own.nodes.length === 1) return [{ id: own.nodes[0]!, node: this.canonical(own.nodes[0]!).node }]
    const seen = new Map<string, Member>()
    for (const member of own.nodes) {
      const { key, node } = this.canonical(member)
      const before = seen.get(key)
      // of equal nodes, one that was read is worth keeping: it can be written as it was
      if (before === undefined || (before.node.origin === undefined && node.origin !== undefined)) {
        seen.set(key, { id: member, node })
      }
    }
    return [...seen.values()]
  }

  /** Nodes that have a node of this class as argument. */
  parents(id: ClassId): ReadonlyArray<ClassId> {
    return [...this.known.get(this.find(id))!.parents]
  }

  /** What is known of a class. */
  facts(id: ClassId): F {
    return this.known.get(this.find(id))!.facts
  }

  /** What a node says from what is known of its arguments. */
  private factsFrom(node: ENode): F {
    return this.analysis.of(node, (i) => this.facts(node.args[i]!))
  }

  /** Whether two nodes are known to be equal. */
  areEqual(a: ClassId, b: ClassId): boolean {
    return this.find(a) === this.find(b)
  }

  /** A node over classes, and its key. Classes that lead still lead to the same form. */
  private canonical(id: ClassId): Canonical {
    const known = this.forms[id]!
    const { node } = known
    if (this.leads(node)) return known
    const now = withArgs(node, node.args.map((arg) => this.find(arg)))
    // in another order of its arguments a contraction is another one
    const isSame = now.kind !== "contract" || (node.kind === "contract" && now.contraction === node.contraction)
    const head = isSame ? known.head : headOf(now)
    return this.forms[id] = { node: now, head, key: keyOf(now, head) }
  }

  /** Whether all arguments of a node lead their classes. */
  private leads({ args }: ENode): boolean {
    for (let i = 0; i < args.length; i++) if (this.leader[args[i]!] !== args[i]) return false
    return true
  }

  /** The number of a node: that of the same node, of an equal one with a proof, or a new one. */
  add(given: ENode): ClassId {
    const node = withArgs(given, given.args)
    const head = headOf(node)
    const exactly = keyOf(node, head)
    const same = this.exact.get(exactly)
    if (same !== undefined) return same
    const id = this.added.push(node) - 1
    this.leader.push(id)
    this.proof.push(undefined)
    this.exact.set(exactly, id)
    this.forms.push({ node, head, key: exactly })
    this.born.push(++this.events)
    const { key } = this.canonical(id)
    const equal = this.ofKey.get(key)
    if (equal !== undefined) {
      this.leader[id] = this.find(equal)
      this.proof[id] = { to: equal, reason: congruence }
      if (node.origin !== undefined) this.known.get(this.find(equal))!.nodes.push(id)
      return id
    }
    this.ofKey.set(key, id)
    const facts = this.factsFrom(node)
    this.known.set(id, { nodes: [id], parents: new Set(), facts, changed: this.events, listed: undefined })
    for (const arg of node.args) this.known.get(this.find(arg))!.parents.add(id)
    return id
  }

  /** The number of a term, whose nodes are added. */
  addTerm(term: Term): ClassId {
    if (typeof term === "number") return term
    if (term.kind === "program") return this.read(term.uop)
    return this.add({ ...term, args: term.args.map((arg) => this.addTerm(arg)) } as ENode)
  }

  /** Makes two nodes equal; whether that is news. `rebuild` before the next look at the graph. */
  union(a: ClassId, b: ClassId, reason: Reason): boolean {
    const [x, y] = [this.find(a), this.find(b)]
    if (x === y) return false
    this.join(a, b, reason)
    // the older class leads: numbers, and so all results, do not depend on how large classes are
    const [keep, gone] = x < y ? [x, y] : [y, x]
    const own = this.known.get(keep)!
    const other = this.known.get(gone)!
    this.leader[gone] = keep
    own.nodes.push(...other.nodes)
    own.changed = ++this.events
    this.stale.push(...other.parents)
    for (const parent of other.parents) own.parents.add(parent)
    const facts = this.analysis.lattice.join(own.facts, other.facts)
    // parents of the one that goes are looked at again as stale ones; those of the other, if it learnt something
    if (!this.analysis.eq.equals(facts, own.facts) || !this.analysis.eq.equals(facts, other.facts)) {
      this.grown.push(keep)
    }
    own.facts = facts
    this.known.delete(gone)
    return true
  }

  /** An edge between the proof trees of two nodes: that of `a` is turned so that `a` is its root. */
  private join(a: ClassId, b: ClassId, reason: Reason): void {
    let at: ClassId = a
    let edge: Justified | undefined = { to: b, reason }
    while (edge !== undefined) {
      const next: Justified | undefined = this.proof[at]
      this.proof[at] = edge
      edge = next === undefined ? undefined : { to: at, reason: next.reason }
      at = next === undefined ? at : next.to
    }
  }

  /** What a node was made equal to, towards the root of its proof tree. */
  justification(id: ClassId): Justified | undefined {
    return this.proof[id]
  }

  /** Restores congruence and what classes know of themselves. */
  rebuild(): void {
    while (this.stale.length > 0 || this.grown.length > 0) {
      const stale = new Set(this.stale)
      this.stale = []
      for (const id of stale) this.congruent(id)
      const grown = new Set(this.grown.map((id) => this.find(id)))
      this.grown = []
      for (const id of grown) for (const parent of this.known.get(id)!.parents) this.learn(parent)
    }
  }

  private congruent(id: ClassId): void {
    const { key } = this.canonical(id)
    const equal = this.ofKey.get(key)
    if (equal === undefined) this.ofKey.set(key, id)
    else this.union(id, equal, congruence)
  }

  private learn(id: ClassId): void {
    const own = this.known.get(this.find(id))!
    const facts = this.analysis.lattice.join(own.facts, this.factsFrom(this.added[id]!))
    if (this.analysis.eq.equals(facts, own.facts)) return
    own.facts = facts
    this.grown.push(this.find(id))
  }
}
