// SPDX-License-Identifier: Apache-2.0
#include "cli/text_reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/shown_text.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/observe/plot.h"
#include "cohort/version.h"

namespace cohort::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRedraw = std::chrono::milliseconds(100);

// The launcher stands between a rank and the terminal, and says so.
bool stderr_is_terminal() {
  const char* launcher = std::getenv("COHORT_STDERR_TTY");
  if (launcher) return std::string_view(launcher) == "1";
  return ::isatty(STDERR_FILENO) == 1;
}

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int given = columns ? std::atoi(columns) : 0;
  return given > 0 ? given : 80;
}

bool ascii_only() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value && *value)
      return std::string_view(value).find("UTF-8") == std::string_view::npos &&
             std::string_view(value).find("utf8") == std::string_view::npos;
  }
  return true;
}

void print_result(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

std::string accuracy_text(std::optional<double> accuracy) {
  return accuracy ? text(", accuracy ", format_fixed(100 * *accuracy, 2), " %") : "";
}

std::string metrics_text(const ValidEvent& event) {
  std::string out = accuracy_text(event.accuracy);
  if (event.perplexity)
    out += text(", perplexity ", format_fixed(*event.perplexity, 2));
  for (const auto& [name, value] : event.named)
    out += text(", ", name, " ", format_fixed(value, 4));
  return out;
}

std::string speed_text(const DoneEvent& event) {
  std::string out;
  if (event.tokens_per_second)
    out += text(format_fixed(*event.tokens_per_second, 0), " tokens/s, ");
  if (event.flops_per_step)
    out += text(format_quantity(*event.flops_per_step), " FLOP in ");
  if (event.mfu) out = text(format_fixed(100 * *event.mfu, 1), " % MFU, ", out);
  return out;
}

}  // namespace

TextReporter::TextReporter(const TextReporterOptions& options, Backlog* backlog)
    : options_(options),
      scalars_(options.out, options.log_every, backlog),
      terminal_(stderr_is_terminal()),
      began_(Clock::now()) {}

void TextReporter::start(const StartEvent& event) {
  total_steps_ = event.total_steps;
  began_ = Clock::now();
  if (options_.quiet) return;
  note(text("cohort ", version(), ": ", options_.recipe, " on ", event.ranks.size(),
            event.ranks.size() == 1 ? " rank" : " ranks", " (", event.backend, ", ",
            event.device, ", ", event.threads,
            event.threads == 1 ? " thread" : " threads",
            event.ranks.size() == 1 ? "), " : " each), ",
            format_quantity(double(event.parameters)), " parameters"));
  note(text(event.data, "; ", event.total_steps, " steps, ", event.steps_per_epoch,
            " per epoch"));
}

void TextReporter::ranks(const std::vector<RankIdentity>&) {}

void TextReporter::recovered(const RecoveredEvent& event) {
  note(text("recovered: ", event.ranks, event.ranks == 1 ? " rank" : " ranks",
            " go on after ", format_duration(event.seconds), " (generation ",
            event.generation, ")"));
}

ProgressState TextReporter::progress(const StepEvent& event) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - began_).count();
  return {.label = text("epoch ", event.epoch, "/", options_.epochs),
          .done = event.step,
          .total = total_steps_,
          .elapsed_s = elapsed,
          .steps_per_second = elapsed > 0 ? double(made_) / elapsed : 0,
          .samples_per_second = event.samples_per_second,
          .loss = event.loss};
}

void TextReporter::step(const StepEvent& event) {
  scalars_.step(event);
  ++made_;
  if (options_.quiet) return;
  if (terminal_) {
    const auto now = Clock::now();
    if (now - shown_ < kRedraw && event.step != total_steps_) return;
    shown_ = now;
    drawn_ = true;
    std::fprintf(
        stderr, "\r%s\x1b[K\r",
        progress_line(progress(event), {terminal_width() - 1, ascii_only()}).c_str());
  } else if (event.step % options_.log_every == 0 || event.step == total_steps_) {
    std::fprintf(stderr, "%s\n",
                 plain_line(progress(event), std::chrono::system_clock::now()).c_str());
  }
  std::fflush(stderr);
}

void TextReporter::clear_line() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void TextReporter::valid(const ValidEvent& event) {
  scalars_.valid(event);
  clear_line();
  print_result(text("epoch ", event.epoch, ": validation loss ",
                    format_fixed(event.loss, 4), metrics_text(event)));
}

void TextReporter::continuation(const ContinuationEvent& event) {
  clear_line();
  print_result(text("sample after step ", event.step, ":\n",
                    shown_text(event.prompt + event.text)));
}

void TextReporter::checkpoint(const CheckpointEvent& event) {
  if (!options_.quiet) note(text("saved step ", event.step, ": ", event.path));
}

void TextReporter::checkpoint_failed(const CheckpointFailedEvent& event) {
  note(text("step ", event.step, " is not saved: ", event.cause));
}

void TextReporter::note(const std::string& line) {
  clear_line();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void TextReporter::done(const DoneEvent& event) {
  scalars_.finish();
  clear_line();
  const bool ascii = ascii_only();
  if (!options_.quiet && event.losses.size() > 1)
    print_result(text("loss by step\n", plot(event.losses, {.ascii = ascii})));
  if (!options_.quiet && event.step_ms > 0)
    print_result(text("where a step's time went (rank 0)\n",
                      split_table(event.split, {80, ascii})));
  std::string line =
      text(event.stop_signal ? "stopped after " : "done: ", event.steps, " steps");
  if (event.loss) line += text(", loss ", format_fixed(*event.loss, 4));
  line += accuracy_text(event.accuracy);
  const bool made_steps = event.first_step_s > 0;
  if (event.step_ms > 0)  // the first is not counted
    line += text(", ", format_fixed(event.samples_per_second, 1), " samples/s, ",
                 speed_text(event), format_fixed(event.step_ms, 2), " ms per step");
  print_result(made_steps ? line : line + "; there was none left to make");
  print_result(text(made_steps ? text("first step after ",
                                      format_fixed(event.first_step_s, 2), " s, ")
                               : "",
                    "peak memory ", format_bytes(double(event.peak_memory_bytes)),
                    " per rank, weights ", event.weights_hash));
  if (event.stop_signal && event.saved && !options_.quiet)
    note("the same command with --resume goes on from here");
}

}  // namespace cohort::cli
