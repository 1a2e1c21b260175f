// What a person would see of each panel: how much data, which text, and what is cut off.

import type { Prepared } from './panel';
import type { Box } from './grid';
import type { Shown } from './paneltype';

export interface PanelReport {
  id: number;
  type: string;
  title: string;
  box: Box;
  shown: Shown;
  /** The visible text of the body. */
  text: string;
  /** Texts that are cut off. */
  clipped: string[];
  /** Texts that one has to scroll to. */
  scrolled: string[];
  /** Ids of panels that this one lies over or under. */
  overlaps: number[];
  /** Whether it leaves the page. */
  outside: boolean;
  /** Whether one has to scroll sideways to see all of it. */
  sideways: boolean;
  errors: string[];
}

export interface Report {
  title: string;
  width: number;
  height: number;
  heading: string;
  panels: PanelReport[];
  errors: string[];
}

/** Rounding and the overhang of letters. */
const TOLERANCE = 1.5;

interface Cut {
  clipped: string[];
  scrolled: string[];
}

function visible(element: Element): boolean {
  const style = getComputedStyle(element);
  if (element.clientWidth === 1 && element.clientHeight === 1 && style.overflow === 'hidden') {
    // Said to screen readers only.
    return false;
  }
  return style.visibility !== 'hidden' && style.display !== 'none' && Number(style.opacity) > 0;
}

function texts(root: Element): Array<{ raw: string; text: string; element: Element; rectangles: DOMRect[] }> {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const raw = node.textContent!;
    const text = raw.trim();
    const element = node.parentElement!;
    if (text && visible(element) && !element.closest('style, script, title')) {
      const range = document.createRange();
      range.selectNodeContents(node);
      found.push({ raw, text, element, rectangles: [...range.getClientRects()] });
    }
  }
  return found;
}

/** How an element cuts off what is larger than itself: not at all, for good, or until one scrolls. */
function cutting(
  style: CSSStyleDeclaration,
  axis: 'overflowX' | 'overflowY'
): 'clipped' | 'scrolled' | undefined {
  const overflow = style[axis];
  return overflow === 'visible'
    ? undefined
    : overflow === 'auto' || overflow === 'scroll'
      ? 'scrolled'
      : 'clipped';
}

/** Looks at every text below `root`, and at everything up to it that could cut the text off. */
export function cuts(root: Element): Cut {
  const found = { clipped: new Set<string>(), scrolled: new Set<string>() };
  for (const { text, element, rectangles } of texts(root)) {
    for (let box: Element | null = element; box; box = box === root ? null : box.parentElement) {
      if (box instanceof SVGElement && !(box instanceof SVGSVGElement)) {
        continue;
      }
      const style = getComputedStyle(box);
      const edge = box.getBoundingClientRect();
      const [x, y] = [cutting(style, 'overflowX'), cutting(style, 'overflowY')];
      const wide = rectangles.some(
        (one) => one.left < edge.left - TOLERANCE || one.right > edge.right + TOLERANCE
      );
      // Letters are lower than their lines: a line may stand out a little.
      const slack = (one: DOMRect) => Math.max(TOLERANCE, one.height * 0.2);
      const high = rectangles.some(
        (one) => one.top < edge.top - slack(one) || one.bottom > edge.bottom + slack(one)
      );
      if (x && wide) {
        found[x].add(text);
      }
      if (y && high) {
        found[y].add(text);
      }
      if ((x === 'scrolled' && wide) || (y === 'scrolled' && high)) {
        // Where it would be once one has scrolled, nobody knows.
        break;
      }
    }
  }
  return {
    clipped: [...found.clipped],
    scrolled: [...found.scrolled].filter((text) => !found.clipped.has(text)),
  };
}

function scrollsSideways(element: Element): boolean {
  return (
    cutting(getComputedStyle(element), 'overflowX') === 'scrolled' &&
    element.scrollWidth > element.clientWidth + TOLERANCE
  );
}

function overlap(a: Box, b: Box): boolean {
  const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
  const down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
  return across > 1 && down > 1;
}

function boxOf(element: Element): Box {
  const { x, y, width, height } = element.getBoundingClientRect();
  return { x: x + scrollX, y: y + scrollY, width, height };
}

export function inspect(all: Prepared[], errors: string[]): Report {
  const page = document.documentElement;
  const grid = document.querySelector('.dashboard-grid')!;
  const heading = document.querySelector<HTMLElement>('.dashboard-heading')!;
  const items = all.map((_, i) => document.querySelector<HTMLElement>(`[data-panel="${i}"]`)!);
  const boxes = items.map(boxOf);
  const inside = boxOf(grid);
  return {
    title: document.title,
    width: page.scrollWidth,
    height: page.scrollHeight,
    heading: heading.innerText,
    errors,
    panels: all.map(({ panel, title, shown, errors: own }, i) => {
      const [item, box] = [items[i], boxes[i]];
      const body = item.querySelector<HTMLElement>('[data-testid="data-testid panel content"]') ?? item;
      return {
        id: panel.id,
        type: panel.type,
        title,
        box,
        shown,
        text: textOf(body),
        ...cuts(item),
        overlaps: all.flatMap((other, j) => (i !== j && overlap(box, boxes[j]) ? [other.panel.id] : [])),
        outside: box.x < inside.x - 1 || box.x + box.width > inside.x + inside.width + 1,
        sideways: [...item.querySelectorAll('*')].some(scrollsSideways),
        errors: own,
      };
    }),
  };
}

/** What an element says, a line for each text: `innerText` knows nothing of SVG, nor of places. */
function textOf(element: Element): string {
  let said = '';
  let last: DOMRect | undefined;
  let ended = false;
  for (const { raw, text, rectangles } of texts(element)) {
    const first = rectangles[0];
    const level = last && first && Math.min(last.bottom, first.bottom) - Math.max(last.top, first.top) > 0;
    const gap = level ? first.left - last!.right : Infinity;
    // A number and its unit are one word, the words of a sentence are one line.
    const spaced = /^\s/.test(raw) || ended;
    said += gap > -1 && gap < 6 ? (spaced || gap > 1.5 ? ` ${text}` : text) : `\n${text}`;
    ended = /\s$/.test(raw);
    last = rectangles.at(-1);
  }
  return said.trim();
}
