// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: schedules with Offload and Fetch, as they were written for a while. They
// load for ever.
namespace cohort::test {

// mlp, elastic, when the host updated what it held.
inline constexpr const char* kCopiesOneRank =
    R"(# a step of 1 ranks and 1 slices, shard level 0, elastic
#@ version number=2
#@ mesh pp=1,replicate=1,cut=1,cp=1,tp=1
#@ step slices=1,shard=0,exact=0,elastic=1,keeps_sums=1,compute=float32,reduce=float32,accumulate=float32
#@ channel kind=compute
#@ channel kind=copy
#@ block 0
#@ block 3
#@ block 6
#@ bucket numel=671744,trained=1,dtype=float32,slot=0,joined=0,sum=replicate+cut,blocks=2;1;0
#@ buffer holds=whole,bucket=0,dtype=float32,numel=671744
#@ buffer holds=moment,bucket=0,dtype=float32,numel=671744
#@ buffer holds=leaf,bucket=0,dtype=float32,numel=671744
role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,scratch,needs,calls,reads,writes,waits
0,0,1,0,Forward,0,,0,0,0,0,524288,,,Input/0;Whole0,Act0/0=262144;Flight0/0=925696,
0,0,1,1,Forward,0,,1,0,0,0,524288,,,Act0/0;Whole0,Act1/0=262144;Flight1/0=524288,
0,0,1,2,Forward,0,,2,0,0,0,262144,,,Act1/0;Whole0,Act2/0=4;Flight2/0=5124;Loss/0,
0,0,1,3,Backward,0,,2,0,0,0,262144,,,Flight2/0;Act2/0;Whole0,ActGrad1/0;Partial0,
0,0,1,4,Backward,0,,1,0,0,0,524288,,,Flight1/0;Act1/0;ActGrad1/0;Whole0;Partial0,ActGrad0/0;Partial0.1,
0,0,1,5,Backward,0,,0,0,0,0,524288,,,Flight0/0;Act0/0;ActGrad0/0;Whole0;Partial0.1,Partial0.2,
0,0,1,6,Vote,0,,,,,8,0,,,Partial0.2;Loss/0,Vote,
0,0,1,7,Offload,1,copies,,,0,2686976,0,,,Partial0.2,Partial0.3,6
0,0,1,8,Update,0,,,,0,2686976,0,,,Partial0.3;Loss/0;Vote;State0,State0.1,7
0,0,1,9,Fetch,1,copies,,,0,2686976,0,,,State0.1;Whole0,Whole0.1,8
0,0,1,10,Commit,0,,,,0,0,0,Vote,,State0.1;Whole0.1;Loss/0;Vote,,9
)";

// The same of mlp -n 3 --layout shard=2.
inline constexpr const char* kCopiesShared =
    R"(# a step of 3 ranks and 3 slices, shard level 2, elastic
#@ version number=2
#@ mesh pp=1,replicate=1,cut=3,cp=1,tp=1
#@ step slices=3,shard=2,exact=0,elastic=1,keeps_sums=1,compute=float32,reduce=float32,accumulate=float32
#@ group name=dp,axes=replicate+cut,mirrors=1
#@ channel kind=compute
#@ channel kind=group,group=0
#@ channel kind=copy
#@ block 0
#@ block 3
#@ block 6
#@ bucket numel=672768,trained=1,dtype=float32,slot=0,joined=0,sum=replicate+cut,blocks=2;1;0
#@ buffer holds=slot,dtype=float32,numel=672768
#@ buffer holds=whole,bucket=0,dtype=float32,numel=672768
#@ buffer holds=moment,bucket=0,dtype=float32,numel=224256
#@ buffer holds=sum,bucket=0,dtype=float32,numel=224256
#@ buffer holds=mirror_sum,bucket=0,dtype=float32,numel=224256
#@ buffer holds=mirror_master,bucket=0,dtype=float32,numel=224256
#@ buffer holds=mirror_moment,bucket=0,dtype=float32,numel=224256
role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,scratch,needs,calls,reads,writes,waits
0,0-2,1,0,Forward,0,,0,0,0,0,176128,,,Input/0;Whole0,Act0/0=88064;Flight0/0=310976,
0,0-2,1,1,Forward,0,,1,0,0,0,176128,,,Act0/0;Whole0,Act1/0=88064;Flight1/0=176128,
0,0-2,1,2,Forward,0,,2,0,0,0,88064,,,Act1/0;Whole0,Act2/0=4;Flight2/0=1724;Loss/0,
0,0-2,1,3,Reduce,1,dp,,,loss,48,0,,,Loss/0,Loss,2
0,0-2,1,4,Backward,0,,2,0,0,0,88064,,,Flight2/0;Act2/0;Whole0,ActGrad1/0;Leaf0/0@0,
0,0-2,1,5,Backward,0,,1,0,0,0,176128,,,Flight1/0;Act1/0;ActGrad1/0;Whole0;Leaf0/0@0,ActGrad0/0;Leaf0/0.1@0,
0,0-2,1,6,Backward,0,,0,0,0,0,176128,,,Flight0/0;Act0/0;ActGrad0/0;Whole0;Leaf0/0.1@0,Leaf0/0.2@0,
0,0-2,1,7,ReduceScatter,1,dp,,0,0,2691072,0,,,Leaf0/0.2@0,Sum0,6
0,0-2,1,8,Mirror,1,dp,,,0,897024,0,,,Sum0,Mirrored0,
0,0-2,1,9,Vote,1,dp,,,,8,0,,,Sum0;Mirrored0;Loss,Vote,
0,0-2,1,10,Offload,2,copies,,,0,897024,0,,,Sum0;Mirrored0,Sum0.1;Mirrored0.1,9
0,0-2,1,11,Update,0,,,,0,1794048,0,,,Sum0.1;Mirrored0.1;Loss;Vote;State0,State0.1,10
0,0-2,1,12,Fetch,2,copies,,,0,897024,0,,,State0.1;Whole0,Whole0.1,11
0,0-2,1,13,Gather,1,dp,,,0,2691072,897024,,,State0.1;Whole0.1,Whole0.2,12
0,0-2,1,14,Commit,0,,,,0,0,0,Vote;Mirror,,State0.1;Whole0.2;Loss;Vote,,13
)";

// The same of mlp -n 2 --layout shard=3, clipped, not elastic.
inline constexpr const char* kCopiesCut =
    R"(# a step of 2 ranks and 2 slices, shard level 3
#@ version number=2
#@ mesh pp=1,replicate=1,cut=2,cp=1,tp=1
#@ step slices=2,shard=3,exact=0,elastic=0,keeps_sums=1,compute=float32,reduce=float32,accumulate=float32
#@ group name=dp,axes=replicate+cut
#@ channel kind=compute
#@ channel kind=group,group=0
#@ channel kind=copy
#@ block 0
#@ block 3
#@ block 6
#@ bucket numel=6144,trained=1,dtype=float32,slot=0,joined=0,sum=replicate+cut,blocks=2
#@ bucket numel=264192,trained=1,dtype=float32,slot=1,joined=0,sum=replicate+cut,blocks=1
#@ bucket numel=403456,trained=1,dtype=float32,slot=0,joined=0,sum=replicate+cut,blocks=0
#@ buffer holds=slot,dtype=float32,numel=403456
#@ buffer holds=slot,dtype=float32,numel=403456
#@ buffer holds=gathered,dtype=float32,numel=403456
#@ buffer holds=gathered,dtype=float32,numel=403456
#@ buffer holds=master,bucket=0,dtype=float32,numel=3072
#@ buffer holds=moment,bucket=0,dtype=float32,numel=3072
#@ buffer holds=sum,bucket=0,dtype=float32,numel=3072
#@ buffer holds=master,bucket=1,dtype=float32,numel=132096
#@ buffer holds=moment,bucket=1,dtype=float32,numel=132096
#@ buffer holds=sum,bucket=1,dtype=float32,numel=132096
#@ buffer holds=master,bucket=2,dtype=float32,numel=201728
#@ buffer holds=moment,bucket=2,dtype=float32,numel=201728
#@ buffer holds=sum,bucket=2,dtype=float32,numel=201728
role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,scratch,needs,calls,reads,writes,waits
0,0-1,1,0,Gather,1,dp,,0,2,1613824,0,,,State2,Whole2.1@2,
0,0-1,1,1,Gather,1,dp,,0,1,1056768,0,,,State1,Whole1.1@3,
0,0-1,1,2,Forward,0,,0,0,2,0,262144,,,Input/0;Whole2.1@2,Act0/0=131072;Flight0/0=462848,0
0,0-1,1,3,Free,0,,,0,2,0,0,,,Whole2.1@2,Whole2.2@2,
0,0-1,1,4,Gather,1,dp,,0,0,24576,0,,,State0,Whole0.1@2,3
0,0-1,1,5,Forward,0,,1,0,1,0,262144,,,Act0/0;Whole1.1@3,Act1/0=131072;Flight1/0=262144,1
0,0-1,1,6,Free,0,,,0,1,0,0,,,Whole1.1@3,Whole1.2@3,
0,0-1,1,7,Forward,0,,2,0,0,0,131072,,,Act1/0;Whole0.1@2,Act2/0=4;Flight2/0=2564;Loss/0,4
0,0-1,1,8,Reduce,1,dp,,,loss,48,0,,,Loss/0,Loss,7
0,0-1,1,9,Gather,1,dp,,0,1,1056768,0,,,State1,Whole1.3@3,
0,0-1,1,10,Backward,0,,2,0,0,0,131072,,,Flight2/0;Act2/0;Whole0.1@2,ActGrad1/0;Leaf0/0@0,
0,0-1,1,11,ReduceScatter,1,dp,,0,0,24576,0,,,Leaf0/0@0,Sum0,10
0,0-1,1,12,Free,0,,,0,0,0,0,,,Whole0.1@2,Whole0.2@2,
0,0-1,1,13,Gather,1,dp,,0,2,1613824,0,,,State2,Whole2.3@2,12
0,0-1,1,14,Backward,0,,1,0,1,0,262144,,,Flight1/0;Act1/0;ActGrad1/0;Whole1.3@3,ActGrad0/0;Leaf1/0@1,9
0,0-1,1,15,ReduceScatter,1,dp,,0,1,1056768,0,,,Leaf1/0@1,Sum1,14
0,0-1,1,16,Free,0,,,0,1,0,0,,,Whole1.3@3,Whole1.4@3,
0,0-1,1,17,Backward,0,,0,0,2,0,262144,,,Flight0/0;Act0/0;ActGrad0/0;Whole2.3@2,Leaf2/0@0,13
0,0-1,1,18,ReduceScatter,1,dp,,0,2,1613824,0,,,Leaf2/0@0,Sum2,17
0,0-1,1,19,Free,0,,,0,2,0,0,,,Whole2.3@2,Whole2.4@2,
0,0-1,1,20,Norm,1,dp,,,,0,0,,,Sum0;Sum1;Sum2;Loss,Norm,
0,0-1,1,21,Offload,2,copies,,,0,12288,0,,,Sum0,Sum0.1,20
0,0-1,1,22,Update,0,,,,0,12288,0,,,Sum0.1;Loss;Norm;State0,State0.1,21
0,0-1,1,23,Fetch,2,copies,,,0,12288,0,,,State0.1,State0.2,22
0,0-1,1,24,Offload,2,copies,,,1,528384,0,,,Sum1,Sum1.1,
0,0-1,1,25,Update,0,,,,1,528384,0,,,Sum1.1;Loss;Norm;State1,State1.1,24
0,0-1,1,26,Fetch,2,copies,,,1,528384,0,,,State1.1,State1.2,25
0,0-1,1,27,Offload,2,copies,,,2,806912,0,,,Sum2,Sum2.1,
0,0-1,1,28,Update,0,,,,2,806912,0,,,Sum2.1;Loss;Norm;State2,State2.1,27
0,0-1,1,29,Fetch,2,copies,,,2,806912,0,,,State2.1,State2.2,28
0,0-1,1,30,Commit,0,,,,0;1;2,0,0,Norm,,State0.2;State1.2;State2.2;Loss;Norm,,29
)";

}  // namespace cohort::test
