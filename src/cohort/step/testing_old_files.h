// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: schedules as the first release wrote them, with takes and frees and
// without what actions read and write. They load for ever.
namespace cohort::test {

// mlp.
inline constexpr const char* kOldOneRank =
    R"(# a step of 1 ranks and 1 slices, shard level 0, elastic
# block 0: 0
# block 1: 3
# block 2: 6
# bucket 0: 671744 elements
role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,takes,frees,scratch,needs,waits
0,0,1,0,Forward,0,,0,0,0,0,1187840,0,524288,,
0,0,1,1,Forward,0,,1,0,0,0,786432,0,524288,,
0,0,1,2,Forward,0,,2,0,0,0,5128,0,262144,,
0,0,1,3,Backward,0,,2,0,0,0,0,5128,262144,,
0,0,1,4,Backward,0,,1,0,0,0,0,786432,524288,,
0,0,1,5,Backward,0,,0,0,0,0,0,1187840,524288,,
0,0,1,6,Vote,0,,,,,8,0,0,0,,
0,0,1,7,Update,0,,,,0,2686976,0,0,0,,
0,0,1,8,Commit,0,,,,0,0,8060928,0,0,Vote,
)";

// fashion-mnist -n 3 --layout shard=2, elastic, clipped.
inline constexpr const char* kOldShared =
    R"(# a step of 3 ranks and 3 slices, shard level 2, elastic
# block 0: c1
# block 1: c2
# block 2: f1
# block 3: f2
# bucket 0: 427008 elements
role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,takes,frees,scratch,needs,waits
0,0-2,1,0,Forward,0,,0,0,0,0,7686336,0,11866624,,
0,0-2,1,1,Forward,0,,1,0,0,0,4854528,0,10322432,,
0,0-2,1,2,Forward,0,,2,0,0,0,561408,0,583424,,
0,0-2,1,3,Forward,0,,3,0,0,0,1728,0,22016,,
0,0-2,1,4,Reduce,1,dp:3x1,,,loss,48,0,0,0,,3
0,0-2,1,5,Backward,0,,3,0,0,0,1708032,1728,22016,,
0,0-2,1,6,Backward,0,,2,0,0,0,0,561408,583424,,
0,0-2,1,7,Backward,0,,1,0,0,0,0,4854528,10322432,,
0,0-2,1,8,Backward,0,,0,0,0,0,0,7686336,11866624,,
0,0-2,1,9,ReduceScatter,1,dp:3x1,,0,0,1708032,0,1708032,0,,8
0,0-2,1,10,Mirror,1,dp:3x1,,,0,569344,0,0,0,,
0,0-2,1,11,Norm,1,dp:3x1,,,,0,0,0,0,,
0,0-2,1,12,Vote,1,dp:3x1,,,,8,0,0,0,,
0,0-2,1,13,Update,0,,,,0,1138688,0,0,0,,12
0,0-2,1,14,Gather,1,dp:3x1,,,0,1708032,569344,569344,0,,13
0,0-2,1,15,Commit,0,dp:3x1,,,0,0,4554752,0,0,Norm;Vote;Mirror,14
)";

// mlp -n 4 --layout shard=3,replicate=2, recomputed.
inline constexpr const char* kOldHybrid =
    R"(# a step of 4 ranks and 4 slices, shard level 3, elastic
# block 0: 0
# block 1: 3
# block 2: 6
# bucket 0: 6144 elements
# bucket 1: 264192 elements
# bucket 2: 403456 elements
role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,takes,frees,scratch,needs,waits
0,0-3,1,0,Gather,2,shard:2x1,,0,2,1613824,1613824,0,0,,
0,0-3,1,1,Gather,2,shard:2x1,,0,1,1056768,1613824,0,0,,
0,0-3,1,2,Forward,0,,0,0,2,0,65536,0,131072,,0
0,0-3,1,3,Free,0,,,0,2,0,0,1613824,0,,
0,0-3,1,4,Gather,2,shard:2x1,,0,0,24576,1613824,0,0,,3
0,0-3,1,5,Forward,0,,1,0,1,0,65536,0,131072,,1
0,0-3,1,6,Free,0,,,0,1,0,0,1613824,0,,
0,0-3,1,7,Forward,0,,2,0,0,0,4,0,65536,,4
0,0-3,1,8,Reduce,1,dp:4x1,,,loss,48,0,0,0,,7
0,0-3,1,9,Gather,2,shard:2x1,,0,1,1056768,1613824,0,0,,6
0,0-3,1,10,Recompute,0,,2,0,0,0,1288,0,65536,,
0,0-3,1,11,Backward,0,,2,0,0,0,1613824,1292,65536,,
0,0-3,1,12,ReduceScatter,2,shard:2x1,,0,0,24576,0,0,0,,11
0,0-3,1,13,Reduce,3,replicate:2x2,,,0,12288,0,0,0,,12
0,0-3,1,14,Free,0,,,0,0,0,0,1613824,0,,
0,0-3,1,15,Gather,2,shard:2x1,,0,2,1613824,1613824,0,0,,14
0,0-3,1,16,Recompute,0,,1,0,1,0,196608,0,131072,,9
0,0-3,1,17,Backward,0,,1,0,1,0,1613824,262144,131072,,
0,0-3,1,18,ReduceScatter,2,shard:2x1,,0,1,1056768,0,0,0,,17
0,0-3,1,19,Reduce,3,replicate:2x2,,,1,528384,0,0,0,,18
0,0-3,1,20,Free,0,,,0,1,0,0,1613824,0,,
0,0-3,1,21,Recompute,0,,0,0,2,0,296960,0,131072,,15
0,0-3,1,22,Backward,0,,0,0,2,0,0,362496,131072,,
0,0-3,1,23,ReduceScatter,2,shard:2x1,,0,2,1613824,0,3227648,0,,22
0,0-3,1,24,Reduce,3,replicate:2x2,,,2,806912,0,0,0,,23
0,0-3,1,25,Free,0,,,0,2,0,0,1613824,0,,
0,0-3,1,26,Vote,1,dp:4x1,,,,8,0,0,0,,24
0,0-3,1,27,Update,0,,,,0,12288,0,0,0,,26
0,0-3,1,28,Update,0,,,,1,528384,0,0,0,,
0,0-3,1,29,Update,0,,,,2,806912,0,0,0,,
0,0-3,1,30,Commit,0,dp:4x1;shard:2x1;replicate:2x2,,,0;1;2,0,4042752,0,0,Vote,
)";

}  // namespace cohort::test
