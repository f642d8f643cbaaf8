// SPDX-License-Identifier: Apache-2.0
#include "elastic_act.h"

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "cohort/core/error.h"
#include "cohort/elastic/membership.h"
#include "cohort/session.h"

namespace cohort::test {
namespace {

struct Fault {
  std::string kind;
  int rank = -1;
  int64_t step = 0;
};

Fault parse_fault(const std::string& given) {
  Fault fault;
  std::istringstream in(given);
  std::getline(in, fault.kind, ':');
  char colon = 0;
  in >> fault.rank >> colon >> fault.step;
  return fault;
}

class Rank {
 public:
  Rank(Membership& membership, const std::vector<std::string>& args)
      : membership_(membership),
        steps_(std::stoll(args.at(0))),
        pause_us_(std::stoi(args.at(1)) * 1000),
        fault_(parse_fault(args.size() > 3 ? args[3] : "")) {
    options_.backend = "shm";
    options_.timeout = std::chrono::milliseconds(std::stoi(args.at(2)));
  }

  int run(World world) {
    for (;;) {
      try {
        live(world);
        return 0;
      } catch (const CommError& error) {
        world = membership_.next_world(error.what());
      }
    }
  }

 private:
  void live(const World& world) {
    suffer("rejoin", world, world.generation == 1);
    if (fault_.kind == "absent" && world.rank != fault_.rank)
      ::signal(SIGTERM, SIG_IGN);
    say(text("joins ", world.rank));
    suffer("absent", world, world.generation == 0);
    Session session(world, options_);
    const auto watch = membership_.watch(session.comm());
    recall();
    at::Tensor most = at::full({1}, step_, at::kLong);
    session.comm().all_reduce(most, ReduceOp::kMax).wait();
    step_ = most.item<int64_t>();
    say(text("world ", world.generation, " ", world.rank, "/", world.size, " pid ",
             ::getpid(), " from ", step_));
    while (step_ < steps_) step(session);
    session.comm().barrier().wait();
    suffer("last", world, world.generation == 0);
    if (world.rank == 0) membership_.finish();
    say(text("end ", world.rank, " at ", step_));
    suffer("late", world, world.generation == 0);
    leave(session);
  }

  void leave(Session& session) {
    try {
      session.comm().barrier().wait();
    } catch (const CommError&) {
      if (!membership_.finished()) throw;
    }
  }

  void step(Session& session) {
    suffer("exit", session.world(), session.world().generation == 0);
    suffer("hang", session.world(), session.world().generation == 0);
    suffer("leave", session.world(), session.world().generation == 0);
    suffer("always", session.world(), true);
    at::Tensor ones = at::ones({1000});
    session.comm().all_reduce(ones, ReduceOp::kSum).wait();
    COHORT_CHECK(ones.eq(session.size()).all().item<bool>(), "a wrong sum");
    remember(++step_, session.rank());
    membership_.committed(step_);
    if (session.rank() == 0 && step_ % 10 == 0) say(text("step ", step_));
    ::usleep(pause_us_);
  }

  void suffer(const std::string& kind, const World& world, bool now) {
    if (!now || fault_.kind != kind || world.rank != fault_.rank ||
        step_ < fault_.step) {
      return;
    }
    if (kind == "exit") ::_exit(3);
    if (kind == "leave") throw CommError("it has had enough");
    if (kind == "hang" || kind == "absent") {
      for (;;) ::pause();
    }
    ::kill(::getpid(), SIGKILL);
  }

  // What the agent keeps of those who were here before.
  void recall() {
    for (const HeldMemory& held : membership_.held()) {
      int64_t step = 0;
      if (::pread(held.fd.get(), &step, sizeof step, 0) == sizeof step) {
        step_ = std::max(step_, step);
      }
    }
  }

  void remember(int64_t step, int rank) {
    if (!memory_ || kept_as_ != rank) {
      memory_.reset(::memfd_create("step", MFD_CLOEXEC));
      membership_.hold(text("rank ", rank), memory_.get());
      kept_as_ = rank;
    }
    COHORT_CHECK(::pwrite(memory_.get(), &step, sizeof step, 0) == sizeof step,
                 "memfd");
  }

  static void say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  Membership& membership_;
  ConnectOptions options_;
  int64_t steps_;
  int pause_us_;
  Fault fault_;
  int64_t step_ = 0;
  UniqueFd memory_;
  int kept_as_ = -1;
};

}  // namespace

int elastic_act(const std::vector<std::string>& args) {
  const auto membership = Membership::from_env();
  COHORT_CHECK(membership, "the run is not elastic");
  std::printf("here %d\n", ::getpid());
  std::fflush(stdout);
  const auto world = membership->first_world();
  if (!world) return 0;
  try {
    return Rank(*membership, args).run(*world);
  } catch (const Dismissed&) {
    return 0;
  }
}

}  // namespace cohort::test
