//! What the events of torch's profiler tell, by their category and name.
//!
//! Categories are those of Kineto. Up to torch 1.11 it wrote them otherwise: a `Kernel`, and an `Operator` for all of the program's.
//! A torch that was built without Kineto, as Debian's, writes the program's events alone, and no category.

/// What an event is of.
pub(super) enum Work<'a> {
    /// A step, by its number.
    Step(&'a str),
    /// A kernel of NCCL, by its collective.
    Nccl(&'a str),
    /// gloo's work on a collective.
    Gloo(&'a str),
    /// Another kernel.
    Kernel,
    /// An operator on the CPU.
    Operator,
    /// The next batch is fetched.
    Data,
    /// An optimizer steps.
    Optimizer(&'a str),
}

impl<'a> Work<'a> {
    /// `None` of what a recording has no place for.
    pub(super) fn of(cat: &str, name: &'a str) -> Option<Self> {
        if cat == "gpu_user_annotation" {
            return None;
        }
        if let Some(step) = name.strip_prefix("ProfilerStep#") {
            return Some(Self::Step(step));
        }
        match cat {
            "kernel" | "Kernel" if name.starts_with("nccl") => {
                let func = name.split('_').nth(1).unwrap_or(name);
                Some(Self::Nccl(func.split('(').next().unwrap_or_default()))
            }
            "kernel" | "Kernel" => Some(Self::Kernel),
            "cpu_op" | "Operator" | "" if name.starts_with("aten::") => Some(Self::Operator),
            _ if name.starts_with("gloo:") => Some(Self::Gloo(name)),
            "user_annotation" | "Operator" | "" => Self::marked(name),
            _ => None,
        }
    }

    /// What torch itself marks in the program.
    fn marked(name: &'a str) -> Option<Self> {
        if name.starts_with("enumerate(DataLoader)#") && name.ends_with("__next__") {
            return Some(Self::Data);
        }
        name.strip_prefix("Optimizer.step#").map(Self::Optimizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_collectives_and_marks_are_told_apart() {
        let kind = |cat, name| match Work::of(cat, name) {
            Some(Work::Step(step)) => format!("step {step}"),
            Some(Work::Nccl(func)) => format!("nccl {func}"),
            Some(Work::Gloo(func)) => format!("gloo {func}"),
            Some(Work::Kernel) => "kernel".to_owned(),
            Some(Work::Operator) => "operator".to_owned(),
            Some(Work::Data) => "data".to_owned(),
            Some(Work::Optimizer(which)) => format!("optimizer {which}"),
            None => "none".to_owned(),
        };
        for (cat, name, told) in [
            ("user_annotation", "ProfilerStep#7", "step 7"),
            ("gpu_user_annotation", "ProfilerStep#7", "none"),
            ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "nccl AllReduce"),
            ("kernel", "gemm", "kernel"),
            ("user_annotation", "nccl:all_reduce", "none"),
            ("user_annotation", "gloo:all_reduce", "gloo gloo:all_reduce"),
            ("cpu_op", "aten::mm", "operator"),
            ("cpu_op", "c10d::allreduce_", "none"),
            ("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data"),
            ("user_annotation", "Optimizer.step#AdamW.step", "optimizer AdamW.step"),
            ("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad", "none"),
            // torch up to 1.11
            ("Operator", "ProfilerStep#7", "step 7"),
            ("Kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "nccl AllReduce"),
            ("Kernel", "volta_sgemm_128x64_tn", "kernel"),
            ("Operator", "aten::mm", "operator"),
            ("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data"),
            ("Operator", "Optimizer.step#SGD.step", "optimizer SGD.step"),
            ("Operator", "DistributedDataParallel.forward", "none"),
            ("Runtime", "cudaLaunchKernel", "none"),
            // torch without Kineto
            ("", "ProfilerStep#7", "step 7"),
            ("", "aten::mm", "operator"),
            ("", "gloo:all_reduce", "gloo gloo:all_reduce"),
            ("", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data"),
            ("", "Optimizer.step#SGD.step", "optimizer SGD.step"),
            ("", "ncclDevKernel_AllReduce", "none"),
        ] {
            assert_eq!(kind(cat, name), told, "{cat} {name}");
        }
    }
}
