// Templates: html`<p>${text}</p>` gives elements of Preact. Values become text, never markup.

import htm from "./vendor/htm.mjs"
import { h } from "./vendor/preact.mjs"

export const html = htm.bind(h)
