/** How far bytes are on their way. */
import * as Sizes from "../Sizes.ts"

export const Progress = ({ doneBytes, label, onCancel, totalBytes }: {
  readonly label: string
  readonly doneBytes: number
  readonly totalBytes: number | undefined
  readonly onCancel?: (() => void) | undefined
}) => (
  <div class="progress">
    <p>
      <span>{label}</span>
      <span class="bytes">
        {totalBytes === undefined
          ? doneBytes === 0 ? "" : Sizes.bytes(doneBytes)
          : `${Sizes.bytes(doneBytes)} of ${Sizes.bytes(totalBytes)}`}
      </span>
    </p>
    <progress aria-label={label} max={1} value={totalBytes === undefined ? undefined : doneBytes / totalBytes} />
    {onCancel === undefined ? null : <button type="button" onClick={onCancel}>Stop</button>}
  </div>
)
