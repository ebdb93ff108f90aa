/** Where programs run: what `--device` chooses among. */
export * from "@tg/node/Devices"
