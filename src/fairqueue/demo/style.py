"""The report's style sheet: light and dark, readable from 360 px up, nothing from outside."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b6570; --paper: #ffffff; --rule: #d9dee3;
        --fifo: #b8430b; --fair: #1166b0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a3adb8; --paper: #14171a; --rule: #343a41; --fifo: #ff9a5c; --fair: #6db3f7; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem 1rem 3rem; max-width: 62rem; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.125rem; margin: 2.25rem 0 .5rem; }
p, dl { margin: .5rem 0; max-width: 46rem; }
.wrong { border-left: .25rem solid var(--fifo); padding-left: .75rem; font-weight: 600; }
.soft, figcaption, caption { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .25rem; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { font-weight: 600; }
tbody th { font-weight: 400; overflow-wrap: normal; }
tbody th[colspan] { font-weight: 600; padding-top: 1rem; }
td { white-space: nowrap; overflow-wrap: normal; }
.strong td { font-weight: 700; }
.tenants th, .tenants td { white-space: nowrap; }
.tenants tbody th { white-space: normal; min-width: 5rem; }
.charts { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; }
figcaption { font-weight: 600; color: var(--ink); }
svg { display: block; width: 100%; height: auto; font-size: 11px; }
svg text { fill: var(--soft); }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }
.line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.fifo { stroke: var(--fifo); }
.fair { stroke: var(--fair); }
.p95 { stroke-width: 1.25; opacity: .75; stroke-dasharray: 4 3; }
.key span { display: inline-block; margin-right: 1.25rem; }
.key i { display: inline-block; width: 1.75rem; height: 0; vertical-align: middle; margin-right: .4rem;
         border-top: 3px solid; }
.key i.p95 { border-top: 2px dashed; }
.key .fifo { color: var(--fifo); }
.key .fair { color: var(--fair); }
@media (max-width: 36rem) {  /* a phone: every wait is seen without scrolling, the class has to go for it */
  .tenants th:nth-child(2), .tenants td:nth-child(2) { display: none; }
  .tenants { font-size: .75rem; line-height: 1.35; }
  .tenants th, .tenants td { padding: .3rem .2rem; }
  .tenants thead th { white-space: normal; overflow-wrap: normal; }
  .tenants tbody th { min-width: 2.5rem; overflow-wrap: anywhere; }
}
@media (max-width: 24rem) { .tenants td { white-space: normal; } }
dt { font-weight: 600; margin-top: .5rem; }
dd { margin: 0; }
""".strip()
