//! Examples at the end of each command's help.

pub(super) const TOP: &str = "\
Examples:
  hvtui                                            open the UI
  hvtui watch --once                               one table of every host's GPUs
  hvtui run -np 2 -- hvtui train digits            train on two slots
  hvtui run -H gpu-a:2,gpu-b:2 -- python train.py  two ranks on each of two hosts
  hvtui replay                                     the timeline of the newest run

Exit codes: 0 ok, the job's own code when the job failed, 64 usage,
65 bad hosts file or recording, 69 host unreachable, 70 a fault of hvtui,
74 a file or standard output cannot be read or written, 75 GPU busy,
77 permission or host key, 78 a check of the hosts is red.
HVTUI_LOG=debug writes hvtui.log into the state folder.";

pub(super) const WATCH: &str = "\
Examples:
  hvtui watch --once
  hvtui watch --json --interval 5 | jq '.hosts[]?.name'
  hvtui watch --filter 'user==li | !ok'
  hvtui watch --csv -n 10 > gpus.csv
  hvtui watch --prometheus /var/lib/node_exporter/hvtui.prom -n 15
  hvtui watch --prometheus 127.0.0.1:9400";

pub(super) const PICK: &str = "\
Exits with 75 when there are not enough, and says who has the others. What is
free now may be taken a moment later: a launch checks it again, and
`hvtui run --free N` picks and starts in one step.

Examples:
  hvtui run --gpus \"$(hvtui pick 4)\" -- python train.py
  CUDA_VISIBLE_DEVICES=$(hvtui pick 2 --filter 'host==local' --format uuid) ./job
  hvtui pick 8 --per-host 4 --format hostfile > hosts
  horovodrun $(hvtui pick 8 --format horovodrun) python train.py
  hvtui pick 2 --filter 'model~h200 & temp<60 & !label==lab'";

pub(super) const RUN: &str = "\
Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR,
MASTER_PORT and HVTUI_* in its environment, on a GPU slot CUDA_VISIBLE_DEVICES
with all GPUs of the run on its host: device LOCAL_RANK is its own.

Lines of horovodrun, mpirun, torchrun, torch.distributed.launch, srun and
TF_CONFIG are understood as they are, and become one run.

Examples:
  hvtui run -np 2 -- hvtui train digits
  hvtui run -- horovodrun -np 4 -H gpu-a:2,gpu-b:2 python train.py
  hvtui run -- torchrun --nproc_per_node=4 train.py
  hvtui run -np 4 -H gpu-a:2,gpu-b:2 --network-interface eth0 -- python x.py
  hvtui run --gpus 'gpu-a:0,1;gpu-b:3' --env NCCL_DEBUG=INFO -- python x.py
  hvtui run --sync . -np 4 -- torchrun train.py
  hvtui run --wait --gpus gpu-a:0 -- ./job
  hvtui run --free 4 --filter 'model~h200' -- torchrun train.py
  hvtui run -np 4 --conda train --ulimit memlock=unlimited -- python x.py
  hvtui run --hostfile hosts --dry-run -- ./job";

pub(super) const RUNS: &str = "\
A filter is terms that must all hold: words of the name, id, host or command;
running, failed, refused, done, stopped, imported, ended, unknown; name~ host~ cmd~ kind~ git~ with
a part of it, git~changed for what was not committed; ranks> age< duration> size>
step> loss< rate> (samples a second); ! before a term excludes what it matches.

Examples:
  hvtui runs
  hvtui runs --filter 'done name~mnist age<7d' --sort loss
  hvtui runs --json | jq '.[0].spec.name'
  hvtui runs check --repair
  hvtui runs mark last 'lr was changed'
  hvtui runs prune --older-than 30d";

pub(super) const CHECK_RUNS: &str = "\
Reads every chunk of every file. A recording that is being written is left
alone. A repaired file holds the good chunks as they are and the end that other
MCAP programs look for. Exits with 65 when a file is not whole or a chunk is
lost, also where it was repaired; with 74 when a file can't be read or written.

Examples:
  hvtui runs check
  hvtui runs check 7QK2 --repair
  hvtui runs check --json | jq '.recordings[] | select(.lost != [])'";

pub(super) const PRUNE: &str = "\
Without a rule here, those of [runs] in the hosts file count. A run goes that
any rule says so of; one that is live, may be, or is being recorded stays.

Examples:
  hvtui runs prune --older-than 30d --dry-run
  hvtui runs prune --keep 50 --max-size 5G
  hvtui runs prune --yes --json";

pub(super) const MARK: &str = "\
The marks are those of the Run and Replay screens (m, M). They are kept beside
the recording, and export and report show them.

Examples:
  hvtui runs mark last 'lr was changed'
  hvtui runs mark 7QK2 --at 90.5 --rank 3 'loader slow'
  hvtui runs mark 7QK2
  hvtui runs mark 7QK2 --delete 2";

pub(super) const ATTACH: &str = "\
Works for any run on your hosts: one that this machine recorded, one that you
started with --detach, one that was started somewhere else. Ctrl-C leaves; the
run goes on. Ends with the run's exit code.

Examples:
  hvtui attach 7QK2
  hvtui attach last";

pub(super) const LOGS: &str = "\
Examples:
  hvtui logs 7QK2
  hvtui logs 7QK2 --rank 3 -f";

pub(super) const TRACE: &str = "\
Torch 2.7 or newer writes what it does on the CPU and on the GPU, rank by rank,
while the run goes on. The traces are fetched, aligned by the hosts' clocks and
put into one file for https://ui.perfetto.dev or chrome://tracing. Ranks of
which none came are named with the reason; then the exit code is 69, and 64
where the run was launched without --traceable.

Examples:
  hvtui run -np 4 --traceable -- torchrun train.py
  hvtui trace last
  hvtui trace 7QK2 --steps 5 -o slow.json
  hvtui trace 7QK2 --for 500ms";

pub(super) const STOP: &str = "\
Examples:
  hvtui stop 7QK2
  hvtui stop 7QK2 --now";

pub(super) const STACKS: &str = "\
Ranks at the same place stand together, those first that hold the others up;
the innermost call first. Python's stacks come from hvtui's hooks, or by py-spy
where a host has it; of other programs the kernel's word is shown. Of a run on
GPUs the collective in which ranks differ comes first, by torch's flight
recorder and NCCL.

Examples:
  hvtui stacks last
  hvtui stacks 7QK2 --threads";

pub(super) const DOCTOR: &str = "\
Looks alone, and changes nothing. Exits with 1 where something is red: a run on
these hosts fails for it.

Examples:
  hvtui doctor
  hvtui doctor --only path,python,reach --verbose
  hvtui doctor -H gpu-b --json | jq '.checks[].verdicts[] | select(.mark == \"bad\")'
  hvtui doctor --since last
  hvtui doctor --since 1d
  hvtui doctor --bundle hvtui.tar.gz";

pub(super) const SMOKE: &str = "\
Runs of hvtui's own, each on free GPUs of all hosts, one after the other: a
measurement of every link, an allreduce by each transport, a training, a
container, an mpirun. Each is recorded as any other run. Exits with 1 where one
has failed; what can't be tried, and why, is no failure.

Examples:
  hvtui smoke
  hvtui smoke -H gpu-a -H gpu-b --only link,tcp
  hvtui smoke --image pytorch/pytorch --data /data/mnist
  hvtui smoke --json | jq '.steps[] | {step, mark, rate, expected_rate}'";

pub(super) const REPLAY: &str = "\
Examples:
  hvtui replay
  hvtui replay 7QK2
  hvtui replay ./run.mcap";

pub(super) const DEMO: &str = "\
Launch what you like: no command is executed, every one becomes a training run.
With --fail among its words it fails in step 240, with --hang it stands still in
step 160. Its recordings go when you leave.

Examples:
  hvtui demo
  hvtui demo --size 64";

pub(super) const REPORT: &str = "\
Examples:
  hvtui report last
  hvtui report 7QK2 --html report.html
  hvtui report 7QK2 --steps 1000-2000 --ranks 0-3
  hvtui report 7QK2 --json | jq '.findings[].words'";

pub(super) const DIFF: &str = "\
Metrics of --fail-if: p50 p95 p99 mean max first-step data forward backward wait
transfer optimizer other exposed overlap samples/s loss last-loss least-loss
duration gpu-util gpu-memory. A change that is not significant does not count.

Exits with 1 when a condition holds, with 65 when one can't be judged because a
run does not have its metric.

Examples:
  hvtui diff 7QK2 last
  hvtui diff 7QK2 AHY0 --fail-if 'p95>+5%' --fail-if 'samples/s<-3%'
  hvtui diff 7QK2 AHY0 --steps 1000-2000 --fail-if 'p50>+5%'
  hvtui diff baseline.mcap last --fail-if 'loss>+0.01' --json";

pub(super) const EXPORT: &str = "\
Examples:
  hvtui export 7QK2 --to chrome -o trace.json
  hvtui export 7QK2 --to chrome --from 10 --to-time 20 --ranks 0,3
  hvtui export 7QK2 --to csv --steps 100-200
  hvtui export 7QK2 --to tensorboard -o logs/7QK2";

pub(super) const IMPORT: &str = "\
Reads Horovod's timeline (HOROVOD_TIMELINE), also of a killed run; traces of
torch's profiler, one file a rank or their folder; TensorBoard's event files or
log folder; logs of NCCL's Inspector plugin; Chrome traces of other programs,
whose steps `--step` names; and what `hvtui export --to chrome` writes. Files are plain, gzip or zstd, and may be cut in the middle. Their
contents decide what they are, not their names. The recording is one like any
other: report, replay, diff, export and runs take it.

Examples:
  hvtui import timeline.json --name before
  hvtui import log/resnet/
  hvtui import rank-0.json.gz rank-1.json.gz -o profile.mcap
  hvtui import jax.trace.json.gz --step train
  hvtui import timeline.json --json | jq '.waits.ranks[]'";

pub(super) const TRAIN: &str = "\
mnist reads what --data names, else what HVTUI_DATA names, else what is in
~/.keras/datasets, ./mnist.npz or ./data/MNIST/raw.

Examples:
  hvtui train digits
  hvtui run -np 2 -- hvtui train diabetes
  hvtui run -np 4 -- hvtui train mnist --data /data/mnist --batch-per-rank 128
  hvtui run -np 2 -- hvtui train synthetic --gradient 100MB --compute 20ms";

pub(super) const BENCH: &str = "\
Example:
  hvtui bench allreduce";

pub(super) const BENCH_ALLREDUCE: &str = "\
Works in place. Where nccl-tests shows out-of-place and in-place, this shows
registered buffers (memory of the group, no copy) and private ones. time is the
mean of all calls and ranks; p50 and min are those of the slowest rank.
algbw is size / time; busbw is algbw * 2(n-1)/n.

Examples:
  hvtui bench allreduce -np 4
  hvtui bench allreduce --transport tcp --private -b 1K -e 16M -f 4
  hvtui run -np 4 -H gpu-a:2,gpu-b:2 -- hvtui bench allreduce --fresh
  hvtui run -np 4 -H gpu-a:2,gpu-b:2 -- hvtui bench allreduce --transport nccl";

pub(super) const BENCH_LINK: &str = "\
Every link carries bytes at once, in both directions, as in the ring of an
allreduce. The last column is the share of what the sender's interface gives,
where the system knows that.

Examples:
  hvtui run -H gpu-a:1,gpu-b:1 -- hvtui bench link
  hvtui run -H gpu-a:1,gpu-b:1 -- hvtui bench link --streams 1 --millis 5000";

pub(super) const HOSTS: &str = "\
Examples:
  hvtui hosts
  hvtui hosts check
  hvtui hosts check --json | jq '.hosts[] | select(.ok | not) | .name'
  hvtui hosts trust gpu-a gpu-b
  hvtui hosts trust gpu-a --fingerprint SHA256:..
  hvtui hosts mesh";

pub(super) const IMAGE_BUILD: &str = "\
Examples:
  hvtui image build .
  hvtui image build docker/Dockerfile -t train:2 -- --build-arg CUDA=12.4
On a host instead, where its engine and its GPUs are:
  hvtui run -H gpu-a --sync . -- docker build -t train:2 .";

pub(super) const IMAGE_PUSH: &str = "\
Each host is asked what it has; only layers that it lacks are sent, where its
engine allows that (docker does; podman and docker with containerd's store get
all). A copy that was cut goes on where it was. At the end the ids are compared.

Examples:
  hvtui image push train:2
  hvtui image push gpu-a,gpu-b train:2
  hvtui image push --dry-run train:2";

pub(super) const CONFIG: &str = "\
Example:
  hvtui config template > hosts.toml";

pub(super) const COMPLETIONS: &str = "\
The shell asks hvtui itself then: for hosts, recipes, runs, checks and files.

Examples:
  hvtui completions bash > ~/.local/share/bash-completion/completions/hvtui
  hvtui completions fish > ~/.config/fish/completions/hvtui.fish
  hvtui completions zsh > ~/.zfunc/_hvtui     (with fpath+=~/.zfunc before compinit)";

pub(super) const MAN: &str = "\
Example:
  hvtui man > hvtui.1 && man ./hvtui.1";
