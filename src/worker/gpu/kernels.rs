//! Our kernels: their PTX, and each one's arguments as its source has them. The tests compare both with the PTX.

use std::ffi::CStr;

/// The PTX of `assets/kernels`, for the driver to make code of.
pub(super) const MODULES: [&str; 3] = [
    concat!(include_str!("../../../assets/kernels/convolution.ptx"), "\0"),
    concat!(include_str!("../../../assets/kernels/dense.ptx"), "\0"),
    concat!(include_str!("../../../assets/kernels/step.ptx"), "\0"),
];

/// Threads a block.
pub(super) const BLOCK: u32 = 256;

/// The arguments of a kernel, laid out as in C.
///
/// # Safety
/// The type is what the kernel of that name takes.
#[expect(unsafe_code, reason = "a promise about another language's types")]
pub(super) unsafe trait Kernel {
    /// Its name.
    const NAME: &'static CStr;
    /// How many threads do something.
    fn threads(&self) -> u32;
}

/// Four bits of a hash decide over four neighbouring values; see `model::dropout`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DropoutArgs {
    pub(super) seed: u64,
    pub(super) first: u64,
    pub(super) dropped: u32,
    pub(super) scale: f32,
}

macro_rules! kernels {
    ($($(#[$meta:meta])* $type:ident $name:literal { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            $(#[$meta])*
            pub(super) struct $type { $(pub(super) $field: $kind),* }

            #[expect(unsafe_code, reason = "the fields are those of the kernel's source")]
            // SAFETY: the fields of `assets/kernels`, in their order; the size is checked against the PTX.
            unsafe impl Kernel for $type {
                const NAME: &'static CStr = $name;
                fn threads(&self) -> u32 {
                    self.threads
                }
            }
        )*

        /// Every kernel's name and bytes of arguments.
        pub(super) const ALL: &[(&CStr, usize)] = &[$(($name, size_of::<$type>())),*];
    };
}

kernels! {
    ConvFirst c"conv_first" { images: u64, params: u64, output: u64, threads: u32, side: u32, out: u32, quads: u32 }
    ConvFirstGradient c"conv_first_gradient" {
        images: u64, gradient: u64, parts: u64, threads: u32, side: u32, out: u32, filters: u32, pixels: u32, chunk: u32,
    }
    #[expect(clippy::struct_field_names, reason = "the names are those of the kernel's source")]
    Patches c"patches" { input: u64, patches: u64, threads: u32, side: u32, out: u32, quads: u32 }
    Gather c"gather" { patches: u64, output: u64, gradient: u64, threads: u32, side: u32, out: u32, quads: u32 }
    Pool c"pool" {
        wide: u64, bias: u64, pooled: u64, winner: u64, dropout: DropoutArgs, threads: u32, out: u32, half: u32, quads: u32,
    }
    Unpool c"unpool" { gradient: u64, winner: u64, wide: u64, threads: u32, out: u32, half: u32, quads: u32 }
    BiasRelu c"bias_relu" { values: u64, bias: u64, dropout: DropoutArgs, threads: u32, quads: u32 }
    ReluGradient c"relu_gradient" { output: u64, gradient: u64, threads: u32, scale: f32 }
    Softmax c"softmax" {
        logits: u64, bias: u64, labels: u64, losses: u64, right: u64, threads: u32, classes: u32,
    }
    Total c"total" { losses: u64, right: u64, own: u64, sums: u64, threads: u32, rows: u32 }
    ColumnSums c"column_sums" { values: u64, parts: u64, threads: u32, columns: u32, rows: u32, chunk: u32 }
    SumParts c"sum_parts" { parts: u64, sum: u64, threads: u32, count: u32 }
    #[expect(clippy::struct_field_names, reason = "the names are those of the kernel's source")]
    Product c"product" {
        left: u64, right: u64, product: u64, threads: u32, rows: u32, columns: u32, inner: u32, left_row: u32,
        left_column: u32, right_row: u32, right_column: u32, chunk: u32,
    }
    Adam c"adam" {
        params: u64, gradient: u64, mean: u64, square: u64, count: u64, threads: u32, rate: f32, keep_mean: f32,
        keep_square: f32, epsilon: f32,
    }
    Descend c"descend" {
        params: u64, gradient: u64, velocity: u64, count: u64, threads: u32, rate: f32, momentum: f32,
    }
    Compress c"compress" { values: u64, halves: u64, threads: u32, scale: f32 }
    Expand c"expand" { halves: u64, values: u64, threads: u32, scale: f32 }
    Slopes c"slopes" { values: u64, threads: u32, period: u32, samples: f32 }
    Spin c"spin" { nanoseconds: u64, threads: u32 }
}

#[cfg(test)]
mod tests {
    use ring::digest::{SHA256, digest};

    use super::*;

    const SOURCES: [(&str, &str); 3] = [
        ("convolution.cu", include_str!("../../../assets/kernels/convolution.cu")),
        ("dense.cu", include_str!("../../../assets/kernels/dense.cu")),
        ("step.cu", include_str!("../../../assets/kernels/step.cu")),
    ];

    #[test]
    fn the_ptx_is_made_from_the_source() {
        let header = include_str!("../../../assets/kernels/device.h");
        for ((name, source), ptx) in SOURCES.into_iter().zip(MODULES) {
            let hash = digest(&SHA256, format!("{header}{source}").as_bytes());
            let hash = hash.as_ref().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
            let first = ptx.lines().next().unwrap();
            let wanted = format!("// sha256 of device.h and {name}: {hash}");
            assert_eq!(first, wanted, "run assets/kernels/build");
            assert!(ptx.contains("\n.version 8.0\n") && ptx.contains("\n.target sm_70\n"), "{name}");
            // One order of additions on every card and in every run.
            assert!(!ptx.contains("atom.") && !ptx.contains("red.") && !ptx.contains(".shared"), "{name}");
        }
    }

    #[test]
    fn arguments_are_those_of_the_ptx() {
        let text = MODULES.concat();
        for (name, bytes) in ALL {
            let name = name.to_str().unwrap();
            assert!(text.contains(&format!(".visible .entry {name}(")), "{name}");
            assert!(
                text.contains(&format!("\t.param .align 8 .b8 {name}_param_0[{bytes}]\n")),
                "{name}: {bytes}"
            );
        }
        assert_eq!(text.matches(".visible .entry ").count(), ALL.len());
    }

    /// Makes the PTX anew where an NVRTC 12.0 is found.
    #[test]
    fn a_compiler_makes_the_same_ptx() {
        let root = env!("CARGO_MANIFEST_DIR");
        let build = format!("{root}/assets/kernels/build");
        match std::process::Command::new("python3").args([&build, "--check"]).output() {
            Err(error) => println!("skipped: no python3: {error}"),
            Ok(made) if made.status.code() == Some(77) => {
                println!("skipped: no NVRTC 12.0; see assets/kernels/build");
            }
            Ok(made) => assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr)),
        }
    }
}
