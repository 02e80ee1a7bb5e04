// Times passes of m rows behind a filled cache, as `foretoken bench pass` does, with llama.cpp's public API.
//
//   passes MODEL THREADS CONTEXTS ROWS REPEATS all|last
//
// CONTEXTS and ROWS are comma-separated; `last` asks for the logits of a pass's last row only, as a prefill does.
// Prints a JSON array of {"context", "passes": [{"rows", "samples": [ms, ...]}]}. Contexts are filled in rising
// order, each on top of the one before. Row counts take turns within a repetition, so that a slow moment of the
// machine falls on all of them.

#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// Rows per pass while a context is filled; its time is not measured.
constexpr int kFillRows = 256;
// Passes of each row count before the first that counts.
constexpr int kWarmUp = 2;

std::vector<int> numbers(const std::string & text) {
    std::vector<int> values;
    std::stringstream stream(text);
    for (std::string item; std::getline(stream, item, ',');) {
        values.push_back(std::stoi(item));
    }
    if (values.empty()) {
        throw std::runtime_error("an empty list where numbers were expected");
    }
    return values;
}

class Engine {
  public:
    Engine(const std::string & path, int threads, int capacity, int rows) {
        model_ = llama_model_load_from_file(path.c_str(), llama_model_default_params());
        if (model_ == nullptr) {
            throw std::runtime_error("cannot load " + path);
        }
        vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
        llama_context_params parameters = llama_context_default_params();
        parameters.n_ctx = static_cast<uint32_t>(capacity);
        parameters.n_batch = static_cast<uint32_t>(std::max(rows, kFillRows));
        parameters.n_threads = threads;
        parameters.n_threads_batch = threads;
        parameters.no_perf = true;
        context_ = llama_init_from_model(model_, parameters);
        if (context_ == nullptr) {
            throw std::runtime_error("cannot make a context for " + path);
        }
    }

    ~Engine() {
        llama_free(context_);
        llama_model_free(model_);
    }

    Engine(const Engine &) = delete;
    Engine & operator=(const Engine &) = delete;

    // Feeds `rows` tokens behind `position`, and returns the milliseconds until their logits are there.
    double pass(int rows, int position, bool all_logits) {
        llama_batch batch = llama_batch_init(rows, 0, 1);
        batch.n_tokens = rows;
        for (int i = 0; i < rows; i++) {
            seed_ = seed_ * 1664525u + 1013904223u;
            batch.token[i] = static_cast<llama_token>((seed_ >> 8) % static_cast<uint32_t>(vocabulary_));
            batch.pos[i] = position + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = all_logits || i == rows - 1;
        }
        const auto start = std::chrono::steady_clock::now();
        const int status = llama_decode(context_, batch);
        llama_synchronize(context_);
        const float * logits = status == 0 ? llama_get_logits_ith(context_, rows - 1) : nullptr;
        const auto end = std::chrono::steady_clock::now();
        llama_batch_free(batch);
        if (logits == nullptr) {
            throw std::runtime_error("a pass failed with status " + std::to_string(status));
        }
        return std::chrono::duration<double, std::milli>(end - start).count();
    }

    void truncate(int length) { llama_memory_seq_rm(llama_get_memory(context_), 0, length, -1); }

  private:
    llama_model * model_ = nullptr;
    llama_context * context_ = nullptr;
    int vocabulary_ = 0;
    uint32_t seed_ = 1;
};

void print_context(int context, const std::vector<int> & rows, const std::vector<std::vector<double>> & samples) {
    std::printf("{\"context\": %d, \"passes\": [", context);
    for (size_t i = 0; i < rows.size(); i++) {
        std::printf("%s{\"rows\": %d, \"samples\": [", i == 0 ? "" : ", ", rows[i]);
        for (size_t j = 0; j < samples[i].size(); j++) {
            std::printf("%s%.4f", j == 0 ? "" : ", ", samples[i][j]);
        }
        std::printf("]}");
    }
    std::printf("]}");
}

void run(char ** arguments) {
    const std::string path = arguments[1];
    const int threads = std::stoi(arguments[2]);
    std::vector<int> contexts = numbers(arguments[3]);
    const std::vector<int> rows = numbers(arguments[4]);
    const int repeats = std::stoi(arguments[5]);
    const bool all_logits = std::string(arguments[6]) == "all";
    std::sort(contexts.begin(), contexts.end());
    const int most = *std::max_element(rows.begin(), rows.end());
    Engine engine(path, threads, contexts.back() + most, most);
    int held = 0;
    for (size_t c = 0; c < contexts.size(); c++) {
        while (held < contexts[c]) {
            const int count = std::min(kFillRows, contexts[c] - held);
            engine.pass(count, held, false);
            held += count;
        }
        std::vector<std::vector<double>> samples(rows.size());
        for (int repeat = -kWarmUp; repeat < repeats; repeat++) {
            for (size_t i = 0; i < rows.size(); i++) {
                const double ms = engine.pass(rows[i], held, all_logits);
                engine.truncate(held);
                if (repeat >= 0) {
                    samples[i].push_back(ms);
                }
            }
        }
        std::printf("%s", c == 0 ? "[" : ", ");
        print_context(held, rows, samples);
    }
    std::printf("]\n");
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "usage: passes MODEL THREADS CONTEXTS ROWS REPEATS all|last\n");
        return 2;
    }
    const bool verbose = std::getenv("PASSES_VERBOSE") != nullptr;
    if (!verbose) {
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    }
    llama_backend_init();
    try {
        run(argv);
    } catch (const std::exception & error) {
        std::fprintf(stderr, "passes: %s\n", error.what());
        return 1;
    }
    llama_backend_free();
    return 0;
}
