// How a run's page looks: one column, light or dark like the reader's system, and fit for a phone's screen.
#pragma once

namespace longstride {

inline constexpr const char* report_style = R"(
:root { --ground: #fbfaf7; --ink: #22242a; --soft: #686c76; --line: #dddad2; --card: #ffffff; --a: #2e6f95; --b: #c8553d;
    --c: #3f7d4e; --d: #8a5aa8; --e: #a06a10; --f: #33808c; --g: #a8476f; --h: #5c6470; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15171c; --ink: #e4e5e9; --soft: #9a9fab; --line: #31353f; --card: #1d2027; --a: #79b8dc; --b: #f0866d;
    --c: #7fc793; --d: #c39be0; --e: #dfae55; --f: #6cc6d3; --g: #e88fb3; --h: #aab1bd; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.25rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .7rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; }
.cards div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.cards b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.cards span, figcaption { color: var(--soft); font-size: .85rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: .8rem; }
svg { width: 100%; height: auto; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
svg text.title { fill: var(--ink); font-weight: 600; }
svg .grid { stroke: var(--line); fill: none; }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.a { --own: var(--a); } .b { --own: var(--b); } .c { --own: var(--c); } .d { --own: var(--d); }
.e { --own: var(--e); } .f { --own: var(--f); } .g { --own: var(--g); } .h { --own: var(--h); }
polyline.p1 { stroke-dasharray: 7 3; } polyline.p2 { stroke-dasharray: 2 3; } polyline.p3 { stroke-dasharray: 9 3 2 3; }
.key.p1 { text-decoration: underline dashed; } .key.p2 { text-decoration: underline dotted; }
.key.p3 { text-decoration: underline wavy; }
polyline { stroke: var(--own); } circle, svg text.name { fill: var(--own); } .key { color: var(--own); font-weight: 600; }
figure.plot { margin: 0; } figure.plot svg { touch-action: pan-y; cursor: crosshair; user-select: none; }
svg .cursor { stroke: var(--soft); stroke-dasharray: 3 3; } svg .zoom { fill: var(--soft); opacity: .2; }
svg text.value { paint-order: stroke; stroke: var(--card); stroke-width: 4px; font-weight: 600; }
figure.plot button { font: inherit; color: inherit; background: none; border: 1px solid var(--line);
  border-radius: .3rem; margin-right: .4rem; cursor: pointer; }
figure.plot button[aria-pressed=true] { color: var(--ink); border-color: var(--soft); }
@media print { figure.plot figcaption { display: none; } }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 500; color: var(--soft); }
.facts { width: 100%; } .facts th { width: 11rem; } .facts td { overflow-wrap: anywhere; }
.wide { overflow-x: auto; } .wide td { white-space: nowrap; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem; font-size: .82rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
code { overflow-wrap: anywhere; }
figure { margin: 0 0 1rem; } img { max-width: 100%; height: auto; border-radius: .3rem; } audio { width: 100%; }
.pixels { image-rendering: pixelated; width: min(100%, 28rem); } .pixels.small { width: 7.5rem; }
.sheets { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
details summary { cursor: pointer; margin-top: .8rem; }
@media (max-width: 30rem) { svg text { font-size: 19px; }
  .wide th, .wide td { font-size: .8rem; padding-right: .5rem; }
  .facts th, .facts td { display: block; width: auto; border: 0; padding: 0; }
  .facts td { border-bottom: 1px solid var(--line); padding-bottom: .4rem; margin-bottom: .4rem; } }
)";

}  // namespace longstride
