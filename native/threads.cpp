#include "threads.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#if !defined(_WIN32)
#include <dlfcn.h>
#include <pthread.h>
#endif

namespace ropewalk {
namespace {

// The entry that GCC's compiled code calls; LLVM's runtime has it too.
using Gomp = void (*)(void (*)(void *), void *, unsigned, unsigned);
std::atomic<Gomp> gomp{nullptr};

struct Shared {
    int64_t items, piece;
    Work work;
    void *context;
    std::atomic<int64_t> next{0};

    void take_all() {
        for (;;) {
            const int64_t first = next.fetch_add(piece, std::memory_order_relaxed);
            if (first >= items) return;
            const int64_t last = first + piece < items ? first + piece : items;
            work(context, first, last);
        }
    }
};

void openmp_body(void *shared) { static_cast<Shared *>(shared)->take_all(); }

// Workers sleep between jobs. Used where no OpenMP runtime is loaded, such as with NumPy.
class Pool {
   public:
    // False: another caller is using the pool.
    bool run(Shared &shared, int threads) {
        std::unique_lock<std::mutex> only(busy_, std::try_to_lock);
        if (!only.owns_lock()) return false;
        {
            std::lock_guard<std::mutex> hold(state_);
            try {
                for (; workers_ < threads - 1; ++workers_)
                    std::thread(&Pool::worker, this).detach();
            } catch (const std::system_error &) {
                // Fewer workers, then; this thread does what they don't.
            }
            job_ = &shared;
            wanted_ = workers_ < threads - 1 ? workers_ : threads - 1;
            running_ = 0;
        }
        wake_.notify_all();
        shared.take_all();
        std::unique_lock<std::mutex> hold(state_);
        wanted_ = 0;  // those not yet awake need not begin
        done_.wait(hold, [this] { return running_ == 0; });
        job_ = nullptr;
        return true;
    }

   private:
    void worker() {
        std::unique_lock<std::mutex> hold(state_);
        for (;;) {
            wake_.wait(hold, [this] { return wanted_ > 0; });
            --wanted_;
            ++running_;
            Shared *job = job_;
            hold.unlock();
            job->take_all();
            hold.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex busy_, state_;
    std::condition_variable wake_, done_;
    Shared *job_ = nullptr;
    int workers_ = 0, wanted_ = 0, running_ = 0;
};

// Never freed: detached workers may outlive static objects. A forked child has none of the
// workers, so it begins with a new pool.
std::atomic<Pool *> pool{nullptr};

Pool &own_pool() {
    Pool *found = pool.load();
    if (found) return *found;
    auto *made = new Pool;
    if (pool.compare_exchange_strong(found, made)) {
#if !defined(_WIN32)
        static std::once_flag once;
        std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); }); });
#endif
        return *made;
    }
    delete made;
    return *found;
}

}  // namespace

void share(int64_t items, int64_t piece, int threads, Work work, void *context) {
    if (items <= 0) return;
    if (piece < 1) piece = 1;
    const int64_t pieces = (items + piece - 1) / piece;
    if (threads > pieces) threads = int(pieces);
    if (threads <= 1) return work(context, 0, items);
    Shared shared;
    shared.items = items;
    shared.piece = piece;
    shared.work = work;
    shared.context = context;
    if (Gomp parallel = gomp.load(std::memory_order_relaxed))
        return parallel(openmp_body, &shared, unsigned(threads), 0);
    if (!own_pool().run(shared, threads)) shared.take_all();
}

bool use_openmp(const char *path) {
#if !defined(_WIN32)
    // NOLOAD: only a runtime that is there already; loading another would be a second pool.
    if (void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD)) {
        if (auto found = reinterpret_cast<Gomp>(dlsym(library, "GOMP_parallel"))) {
            gomp.store(found);
            return true;
        }
    }
#else
    (void)path;
#endif
    return false;
}

const char *pool_name() { return gomp.load() ? "openmp" : "own"; }

}  // namespace ropewalk
