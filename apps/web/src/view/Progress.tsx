/** How far bytes are on their way. */
import * as Sizes from "../Sizes.ts"

export const Progress = ({ doneBytes, label, onCancel, show = Sizes.bytes, totalBytes }: {
  readonly label: string
  /** In words, where they are no bytes. */
  readonly show?: ((amount: number) => string) | undefined
  readonly doneBytes: number
  readonly totalBytes: number | undefined
  readonly onCancel?: (() => void) | undefined
}) => (
  <div class="progress">
    <p>
      <span>{label}</span>
      <span class="bytes">
        {totalBytes === undefined
          ? doneBytes === 0 ? "" : show(doneBytes)
          : `${show(doneBytes)} of ${show(totalBytes)}`}
      </span>
    </p>
    <progress aria-label={label} max={1} value={totalBytes === undefined ? undefined : doneBytes / totalBytes} />
    {onCancel === undefined ? null : <button type="button" onClick={onCancel}>Stop</button>}
  </div>
)
