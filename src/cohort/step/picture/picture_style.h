// SPDX-License-Identifier: Apache-2.0
// What all pictures of a step look like. A page is light or dark as its reader's is.
#pragma once

#include <string_view>

namespace cohort {

inline constexpr std::string_view kPictureStyle = R"svg(<style>
text { font: 10px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; }
.under { font-size: 12px; fill: #59636e; }
.name { font-size: 12px; font-weight: 600; }
.soft { fill: #59636e; }
.small { font-size: 9.5px; }
.end { text-anchor: end; }
.mid { text-anchor: middle; }
.mark { text-anchor: middle; pointer-events: none; }
.page { fill: #ffffff; }
.lane { fill: #f3f5f7; }
.box { stroke: #ffffff; stroke-width: 0.5; }
.through { pointer-events: none; }
.grid { stroke: #d8dde3; stroke-width: 1; }
.axis { stroke: #9aa4af; stroke-width: 1; }
.memory { fill: #b9c6d6; stroke: #6b7f97; stroke-width: 1; }
.state { stroke: #59636e; stroke-width: 1; stroke-dasharray: 3 3; }
.peak { fill: #d1242f; stroke: #ffffff; stroke-width: 1; }
.onlight { fill: #1b1f24; }
.ondark { fill: #ffffff; }
.hatch { stroke: #d3d9e0; stroke-width: 1.5; }
.again { stroke: #ffffff; stroke-width: 1.5; stroke-opacity: 0.75; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .under, .soft { fill: #9198a1; } .page { fill: #0d1117; }
  .lane { fill: #171c23; } .box { stroke: #0d1117; } .grid { stroke: #2a313a; }
  .axis { stroke: #656d77; } .memory { fill: #33465c; stroke: #7d93ad; }
  .state { stroke: #9198a1; } .peak { stroke: #0d1117; } .onlight { fill: #1b1f24; }
  .hatch { stroke: #232a33; }
}
</style>
<defs>
<pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern>
<pattern id="again" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><line x1="0" y1="0" x2="0" y2="5" class="again"/></pattern>
</defs>
)svg";

// What only stages and calls inside of blocks need.
inline constexpr std::string_view kStageStyle = R"svg(<style>
.name { stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; paint-order: stroke; }
.part { font-weight: 400; fill: #59636e; }
.num { font-size: 9px; }
.calls { fill: none; stroke: #1b1f24; stroke-width: 1.4; pointer-events: none; }
.bright { stroke: #ffffff; }
.edge { fill: none; stroke: #ffffff; stroke-width: 0.9; pointer-events: none; }
.dots { fill: #ffffff; fill-opacity: 0.5; }
.bubble { stroke: #b4bec9; stroke-width: 1.4; }
@media (prefers-color-scheme: dark) {
  .name { stroke: #0d1117; } .part { fill: #9198a1; } .edge { stroke: #0d1117; }
  .bubble { stroke: #414b57; }
}
</style>
<defs>
<pattern id="weights" width="4" height="4" patternUnits="userSpaceOnUse"><circle cx="1" cy="1" r="0.6" class="dots"/><circle cx="3" cy="3" r="0.6" class="dots"/></pattern>
<pattern id="bubble" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" class="bubble"/></pattern>
</defs>
)svg";

}  // namespace cohort
