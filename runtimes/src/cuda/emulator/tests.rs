//! Kernels with races, which the search finds, and what orders them.

use super::{Compiler, Emulator, compiler};
use crate::cuda::device::{Device, Grid};
use crate::cuda::source::{File, Source};

/// The kernel `k` of a block of 64 threads with 4096 bytes of dynamic shared memory, and what its launch found. `at` has
/// a float of each thread, `out` and `in` are memory of 64 floats.
macro_rules! kernel {
    ($body:literal) => {
        run(concat!(
            "#line 1 \"k.cu\"\nKERNEL k(float* out, const float* in) {\n",
            "__shared__ float at[64]; DYNAMIC_SHARED(dynamic); const int t = threadIdx.x; (void)dynamic; (void)in; (void)at;\n",
            $body,
            "}\nEXPORT(k)\n"
        ))
    };
}

fn run(text: &'static str) -> Result<(), String> {
    let device = Emulator::new(Compiler::with_races(compiler().unwrap()));
    let kernels = device.prepare(&[Source::new(File::of_test("k", text), "k")]).unwrap();
    let memory = [device.allocate(256).unwrap(), device.allocate(256).unwrap()];
    let addresses = [memory[0].address(), memory[1].address()];
    let arguments: Vec<&[u64]> = addresses.iter().map(std::slice::from_ref).collect();
    device.launch(kernels[0], Grid { blocks: [2, 1, 1], threads: 64, shared: 4096 }, &arguments)
}

/// Whether a launch found a race of two such accesses.
#[track_caller]
fn assert_race(found: Result<(), String>, parts: &[&str]) {
    let error = found.unwrap_err();
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn a_shuffle_orders_no_memory() {
    let race = kernel!("at[t] = 1.0f; float x = __shfl_xor_sync(ALL_LANES, 1.0f, 1); out[t] = x + at[t ^ 1];");
    assert_race(race, &["kernel k", "block (0, 0, 0)", "a write by thread", "a read by thread", "k.cu:3"]);
    kernel!("at[t] = 1.0f; __syncwarp(); out[t] = at[t ^ 1];").unwrap();
    kernel!("at[t] = 1.0f; __syncthreads(); out[t] = at[t ^ 1];").unwrap();
    kernel!("at[t] = 1.0f; out[t] = at[t];").unwrap();
}

#[test]
fn a_warp_does_not_order_what_another_one_does() {
    assert_race(kernel!("at[t] = 1.0f; __syncwarp(); out[t] = at[t ^ 32];"), &["a write", "a read"]);
    kernel!("at[t] = 1.0f; __syncthreads(); out[t] = at[t ^ 32];").unwrap();
}

#[test]
fn what_others_still_read_is_not_written() {
    let race = kernel!(
        "at[t] = 1.0f; __syncthreads();
         out[t] = at[t ^ 32];
         at[t] = 2.0f;"
    );
    assert_race(race, &["k.cu:4", "k.cu:5"]);
    // Two readers, of which the nearer one is ordered.
    let far =
        kernel!("at[t] = 1.0f; __syncthreads(); out[t] = at[0] + at[32]; __syncwarp(); if (t == 0) at[0] = 2.0f;");
    assert_race(far, &["a read by thread", "a write by thread 0"]);
    kernel!("at[t] = 1.0f; __syncthreads(); out[t] = at[t ^ 32]; __syncthreads(); at[t] = 2.0f;").unwrap();
    kernel!("at[t] = 1.0f; __syncthreads(); out[t] = at[0]; out[t] += at[32];").unwrap();
}

#[test]
fn vectors_and_bytes_are_watched() {
    let race = kernel!(
        "signed char* bytes = reinterpret_cast<signed char*>(dynamic); bytes[t] = 1;
         const Pack<signed char, 16> own = load<16>(bytes + t / 16 * 16);
         out[t] = own.items[3];"
    );
    assert_race(race, &["a write", "a read"]);
    kernel!("reinterpret_cast<signed char*>(dynamic)[t] = 1; out[t] = reinterpret_cast<signed char*>(dynamic)[t];")
        .unwrap();
}

#[test]
fn matrices_are_read_for_their_lanes() {
    // Each warp has 512 bytes, of which each lane writes 16.
    let race = kernel!(
        "unsigned char* own = dynamic + t / 32 * 512 + t % 32 * 16; store(own, Pack<unsigned char, 16>{});
         unsigned to[4]; load_matrices(to, shared_address(own)); out[t] = to[0];"
    );
    assert_race(race, &["a write", "a read"]);
    kernel!(
        "unsigned char* own = dynamic + t / 32 * 512 + t % 32 * 16; store(own, Pack<unsigned char, 16>{});
         __syncwarp(); unsigned to[4]; load_matrices(to, shared_address(own)); out[t] = to[0];"
    )
    .unwrap();
    // The registers that mma and ldmatrix fill order nothing either.
    let race = kernel!(
        "unsigned char* own = dynamic + t / 32 * 512 + t % 32 * 16; store(own, Pack<unsigned char, 16>{});
         __syncwarp(); unsigned to[4]; load_transposed(to, shared_address(own)); own[0] = 1; out[t] = to[0];"
    );
    assert_race(race, &["a read", "a write"]);
}

#[test]
fn asynchronous_copies_are_under_way_until_their_thread_has_waited() {
    // Others read after a barrier that follows the wait.
    kernel!(
        "if (t < 16) { copy_async(shared_address(at + 4 * t), in + 4 * t, false); copies_commit(); copies_wait<0>(); }
         __syncthreads(); out[t] = at[t];"
    )
    .unwrap();
    let no_barrier = kernel!(
        "if (t < 16) { copy_async(shared_address(at + 4 * t), in + 4 * t, false); copies_commit(); copies_wait<0>(); }
         out[t] = at[t];"
    );
    assert_race(no_barrier, &["a write", "a read"]);
    let no_wait = kernel!(
        "if (t < 16) { copy_async(shared_address(at + 4 * t), in + 4 * t, false); copies_commit(); }
         __syncthreads(); out[t] = at[t]; copies_wait<0>();"
    );
    assert_race(no_wait, &["an asynchronous copy", "a read", "has waited for it"]);
    // What others still read is not copied over, even if the wait is after a barrier.
    let overwritten = kernel!(
        "at[t] = 1.0f; __syncthreads(); out[t] = at[t ^ 32];
         if (t < 16) { copy_async(shared_address(at + 4 * t), in + 4 * t, false); copies_commit(); }
         __syncthreads(); copies_wait<0>();"
    );
    assert_race(overwritten, &["a read", "an asynchronous copy", "no barrier"]);
}
