/** Line drawings of 24 by 24. They say nothing to a screen reader: the button around them does. */
const paths = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  again: "M20 12a8 8 0 1 1-2.300-5.600M20 4v4h-4",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 13l4 4L19 7",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
  gear: "M4 8h10M18 8h2M4 16h2M10 16h10M16 6v4M8 14v4",
  close: "M6 6l12 12M18 6L6 18"
} as const

/** The name of a drawing. */
export type IconName = keyof typeof paths

export const Icon = ({ name }: { readonly name: IconName }) => (
  <svg
    viewBox="0 0 24 24"
    width="20"
    height="20"
    fill="none"
    stroke="currentColor"
    stroke-width="1.8"
    stroke-linecap="round"
    stroke-linejoin="round"
    aria-hidden="true"
  >
    <path d={paths[name]} />
  </svg>
)

/** A button that is a drawing. */
export const IconButton = ({ class: extra, label, name, onClick }: {
  readonly name: IconName
  readonly label: string
  readonly onClick: () => void
  readonly class?: string
}) => (
  <button type="button" class={`icon ${extra ?? ""}`} aria-label={label} title={label} onClick={onClick}>
    <Icon name={name} />
  </button>
)
