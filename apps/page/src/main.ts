/** The page of a server. */
import { mount } from "./Page.ts"
import { ofServer } from "./Parts.ts"

mount(document.getElementById("app")!, { parts: ofServer })
