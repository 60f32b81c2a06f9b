// @ts-check
/**
 * What a page of its own puts around its stages. Each is one file with one class, whose name here is the `kind` of the
 * page's data (`minisgl_widgets/document.py`):
 *
 *     constructor(el, stages, data)    puts itself into `el`, the element that holds the stages, and drives them
 */
import { Pair } from "./pair.js";
import { Quiz } from "./quiz.js";
import { Tour } from "./tour.js";

export const PANELS = { pair: Pair, quiz: Quiz, tour: Tour };
