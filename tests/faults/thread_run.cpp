// SPDX-License-Identifier: Apache-2.0
#include "faults/thread_run.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"
#include "cohort/train/agent_pages.h"
#include "cohort/train/testing_reporter.h"

namespace cohort::threads {
namespace {

constexpr std::chrono::seconds kCaseLimit{20};  // only a hang reaches it
thread_local bool is_rank = false;              // not a thread that works for one

}  // namespace

// What the loop of one rank asks for.
class ThreadRun::Host final : public RankHost {
 public:
  Host(ThreadRun& run, AgentLink link, std::optional<World> first)
      : run_(run),
        membership_(std::move(link), std::move(first)),
        pages_(membership_),
        train_(make_data(run.options_.model, 40)),
        valid_(make_data(run.options_.model, 7)) {}

  WorldTies connect(const World& world) override {
    WorldTies ties;
    ties.comm = run_.take_communicator(world);
    return ties;
  }
  std::unique_ptr<Trainer> make_trainer(Communicator*) override {
    TrainerOptions options = run_.options_.trainer;
    const int stages = options.layout.pp * options.step.pipeline.stages_per_place;
    const auto chain_of_part = [this, stages, parts = options.layout.tp](int part) {
      return make_chain(run_.options_.model, stages, {.rank = part, .size = parts});
    };
    chain_ = chain_of_part(0);
    return std::make_unique<Trainer>(chain_, *train_, valid_.get(), options, stop_,
                                     TrainerServices{.membership = &membership_,
                                                     .pages = &pages_,
                                                     .faults = run_.options_.faults,
                                                     .chain_of_part = chain_of_part});
  }
  Reporter& reporter() override { return recorder_; }
  void introduce(Communicator&, Reporter*, const Trainer&) override {}

  Membership& membership() { return membership_; }
  const test::Recorder& recorder() const { return recorder_; }

 private:
  ThreadRun& run_;
  Membership membership_;
  AgentPages pages_;
  std::unique_ptr<Dataset> train_, valid_;
  Chain chain_;
  std::atomic<int> stop_{0};
  test::Recorder recorder_;
};

// One life of a rank. It stays until the run is over, as the pages of a killed process
// do for its peers.
struct ThreadRun::Member {
  enum class End { kRunning, kWell, kKilled, kError };

  int place = 0;
  AgentLink link;
  std::unique_ptr<Host> host;
  std::unique_ptr<RankLoop> loop;
  bool reported = false;
  bool leaving = false;
  std::atomic<End> end{End::kRunning};
  bool counted = false;  // its end
  std::optional<DoneEvent> done;
  std::string error;
  std::thread thread;

  Member(int place, AgentLink link) : place(place), link(std::move(link)) {}
  bool lives() const { return end == End::kRunning; }
};

ThreadRun::ThreadRun(Options options)
    : options_(std::move(options)), size_(options_.ranks) {}

ThreadRun::~ThreadRun() {
  for (auto& member : members_)
    if (member->thread.joinable()) member->thread.join();
  // Trainers go before the communicators that they use.
  for (auto& member : members_) member->loop.reset();
}

void ThreadRun::kill(int rank) {
  if (!is_rank) {  // it does nothing more, and its rank ends as soon as it hears of it
    std::unique_lock lock(mutex_);
    doomed_.insert(rank);
    change_.wait(lock, [&] { return over_; });
  }
  throw InjectedFault("the rank is killed");
}

void ThreadRun::freeze() {
  std::unique_lock lock(mutex_);
  ++frozen_;
  time_runs_ = true;
  change_.notify_all();
  change_.wait_for(lock, kCaseLimit, [&] { return release_frozen_; });
  throw InjectedFault("the rank is ended while it is frozen");
}

void ThreadRun::lose_message(int rank) {
  options_.faults->arm(
      {.name = "comm.message", .rank = rank, .action = Fault::Action::kDrop});
  let_time_run();
}

void ThreadRun::let_time_run() {
  const std::lock_guard lock(mutex_);
  time_runs_ = true;
}

void ThreadRun::resize(int ranks) {
  const std::lock_guard lock(mutex_);
  wanted_size_ = ranks;
}

void ThreadRun::slow_down(std::chrono::seconds time) {
  constexpr std::chrono::milliseconds kPause{
      20};  // in which others show that they live
  for (auto waited = std::chrono::seconds(0); waited < time; waited += kTimeout / 4) {
    std::this_thread::sleep_for(kPause);
    clock_.advance(kTimeout / 4);
  }
}

World ThreadRun::world_of(int place) const {
  World world;
  world.rank = world.local_rank = place;
  world.size = world.local_size = size_;
  world.generation = generation_;
  world.master_port = 1;
  world.launcher = "cohort";
  return world;
}

// All communicators of a world are made at once, for whoever comes first.
std::unique_ptr<Communicator> ThreadRun::take_communicator(const World& world) {
  const std::lock_guard lock(mutex_);
  auto& hall = halls_[world.generation];
  if (hall.empty())
    hall = make_local(world.size, LocalOptions{.timeout = kTimeout,
                                               .generation = world.generation,
                                               .clock = &clock_,
                                               .faults = options_.faults});
  return std::move(hall.at(world.rank));
}

void ThreadRun::start(int place, std::optional<World> first) {
  auto [ours, theirs] = AgentLink::make_pair();
  ours.send(LinkMessage::kProgressPage, generation_, {}, progress_page_.fd());
  if (!first) ours.send(LinkMessage::kWorld, generation_, encode(world_of(place)));
  members_.push_back(std::make_unique<Member>(place, std::move(ours)));
  Member& member = *members_.back();
  member.host = std::make_unique<Host>(*this, std::move(theirs), first);
  member.loop = std::make_unique<RankLoop>(*member.host, &member.host->membership());
  member.thread = std::thread([this, &member, first] { body(member, first); });
}

void ThreadRun::body(Member& member, std::optional<World> first) {
  at::set_num_threads(1);
  is_rank = true;
  auto end = Member::End::kWell;
  try {
    member.done = member.loop->run(first.value_or(World{}));
  } catch (const InjectedFault&) {
    end = Member::End::kKilled;
  } catch (const std::exception& error) {
    member.error = error.what();
    end = Member::End::kError;
  }
  member.end = end;
  const std::lock_guard lock(mutex_);
  change_.notify_all();
}

void ThreadRun::open(int size) {
  ++generation_;
  ++result_.generations;
  lost_ = false;
  std::vector<bool> lives(size_, false);
  for (const auto& member : members_)
    if (member->lives() && !member->leaving) lives[member->place] = true;
  const Team& team = options_.team;
  const std::vector<int> seats = seat(lives, size / team.ranks(), team);
  {
    const std::lock_guard lock(mutex_);
    size_ = size;
    release_frozen_ = false;
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = *members_[i];
    if (!member.lives() || member.leaving) continue;
    member.reported = false;
    const auto found = std::ranges::find(seats, member.place);
    if (found == seats.end()) {
      member.leaving = true;
      member.link.send(LinkMessage::kDismissed, generation_);
      continue;
    }
    member.place = static_cast<int>(found - seats.begin());
    member.link.send(LinkMessage::kWorld, generation_, encode(world_of(member.place)));
  }
  for (int place = 0; place < size; ++place)
    if (seats[place] < 0) start(place, std::nullopt);
}

void ThreadRun::handle(Member& member, LinkMessage& message) {
  switch (message.kind) {
    case LinkMessage::kLost:
      if (message.generation != generation_ || member.leaving) break;
      member.reported = true;
      if (!lost_) break_world(message.text);
      break;
    case LinkMessage::kFinish:
      if (message.generation != generation_ || lost_) break;
      promised_ = true;
      member.link.send(LinkMessage::kFinished, generation_);
      break;
    case LinkMessage::kHold:
      if (message.fd) kept_[message.text] = std::move(message.fd);
      break;
    case LinkMessage::kNextHeld:
      answer_kept(member, message.text);
      break;
    default:
      break;
  }
}

void ThreadRun::answer_kept(const Member& member, const std::string& name) const {
  const auto next = kept_.upper_bound(name);
  const bool none = next == kept_.end();
  member.link.send(LinkMessage::kHeld, generation_, none ? "" : next->first,
                   none ? -1 : next->second.get());
}

void ThreadRun::break_world(const std::string& why) {
  lost_ = true;
  last_reason_ = why;
  for (const auto& member : members_)
    if (member->lives() && !member->reported)
      member->link.send(LinkMessage::kBroken, generation_, why);
}

void ThreadRun::look_at(Member& member) {
  while (auto message = member.link.receive()) handle(member, *message);
}

bool ThreadRun::finished() const {
  return promised_ || (result_.done && result_.done->steps > 0);
}

bool ThreadRun::everyone_reported() const {
  for (const auto& member : members_)
    if (member->lives() && !member->leaving && !member->reported) return false;
  return true;
}

// What the ends and complaints since the last call come to.
void ThreadRun::settle() {
  bool died = false;
  for (const auto& member : members_) {
    if (member->lives() || member->counted) continue;
    member->counted = true;
    if (member->end == Member::End::kError && result_.error.empty())
      result_.error = member->error;
    if (member->end == Member::End::kWell && member->done && member->place == 0)
      result_.done = member->done;
    died |= member->end == Member::End::kKilled && !member->leaving;
    if (member->end == Member::End::kKilled && member->place == 0) promised_ = false;
  }
  std::unique_lock lock(mutex_);
  living_ = 0;
  for (const auto& member : members_) {
    living_ += member->lives();
    if (!member->lives() || member->leaving || !doomed_.contains(member->place))
      continue;
    member->leaving = died = true;
    if (member->place == 0) promised_ = false;
    member->link.send(LinkMessage::kDismissed, generation_);
  }
  doomed_.clear();
  if (frozen_ > 0) {
    size_t reported = 0, living = 0;
    for (const auto& member : members_) {
      living += member->lives() && !member->leaving;
      reported += member->lives() && !member->leaving && member->reported;
    }
    // Whoever is dismissed and does not go is ended when the others are done.
    if (living == 0 || (lost_ && reported + frozen_ >= living)) {
      frozen_ = 0;
      release_frozen_ = true;
      change_.notify_all();
      return;
    }
  }
  const auto wanted = std::exchange(wanted_size_, std::nullopt);
  lock.unlock();
  if (!result_.error.empty()) {
    for (const auto& member : members_)
      if (member->lives())
        member->link.send(LinkMessage::kRunEnds, generation_, "over");
    return;
  }
  if (finished() && (lost_ || died)) {  // there is nobody to go on with
    if (!lost_) break_world("a rank died");
    for (const auto& member : members_) {
      if (!member->lives() || member->leaving || !member->reported) continue;
      member->leaving = true;
      member->link.send(LinkMessage::kDismissed, generation_);
    }
    return;
  }
  if (died || (lost_ && everyone_reported())) return open(size_);
  if (wanted) open(*wanted);
}

// False once everyone has ended, though not all ends may have been looked at.
bool ThreadRun::step_once() {
  std::vector<pollfd> polls;
  for (const auto& member : members_)
    if (member->link.open()) polls.push_back({member->link.fd(), POLLIN, 0});
  ::poll(polls.data(), polls.size(), 2);
  for (size_t i = 0; i < members_.size(); ++i) look_at(*members_[i]);
  settle();
  for (const auto& member : members_)
    if (member->lives()) return true;
  return false;
}

// Moves the clock while ranks wait for one that is frozen, or for a message that is
// lost, in steps that none can take for a deadline.
void ThreadRun::keep_time(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kLook{2};
  while (!stop.stop_requested()) {
    bool runs = false;
    int waiting = 1;
    {
      std::unique_lock lock(mutex_);
      change_.wait_for(lock, kLook, [&] { return stop.stop_requested(); });
      runs = time_runs_;
      waiting = std::max(1, living_ - frozen_);
    }
    if (runs && clock_.wait_for_sleepers(waiting, kLook)) clock_.advance(kTimeout / 4);
  }
}

std::string ThreadRun::describe() {
  std::string all = text(options_.name, "; generation ", generation_, " of ", size_,
                         lost_ ? ", lost: " + last_reason_ : "");
  for (const auto& member : members_)
    all += text("; rank ", member->place, member->lives() ? " lives" : " ended",
                member->reported ? ", reported " : " ", member->error);
  return all;
}

ThreadRunResult ThreadRun::run() {
  for (int place = 0; place < size_; ++place) start(place, world_of(place));
  std::jthread time([this](const std::stop_token& stop) { keep_time(stop); });
  const auto limit = std::chrono::steady_clock::now() + kCaseLimit;
  while (step_once()) {
    if (std::chrono::steady_clock::now() < limit) continue;
    std::fprintf(stderr, "a run of threads hangs: %s\n", describe().c_str());
    std::abort();  // threads that hang cannot be ended in another way
  }
  settle();
  std::unique_lock lock(mutex_);
  over_ = true;
  change_.notify_all();
  lock.unlock();
  for (const auto& member : members_) {
    member->thread.join();
    const test::Recorder& said = member->host->recorder();
    result_.notes += said.notes;
    for (const auto& step : said.steps) result_.steps.push_back(step.step);
    for (const auto& valid : said.valids) result_.validated.push_back(valid.epoch);
  }
  if (!result_.done && result_.error.empty()) result_.notes += describe();
  return std::move(result_);
}

}  // namespace cohort::threads
