//! MIG slices by the real binary on a scripted NVML, and on the screens.

use std::process::{Child, Stdio};
use std::sync::Arc;

use hvtui::domain::event::{Event, Origin};
use hvtui::domain::gpu::mig::{MigInstance, slice_index};
use hvtui::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use hvtui::domain::host::{HostInfo, HostSample};
use hvtui::domain::ids::HostId;
use hvtui::domain::lease::{Lease, Leases};
use hvtui::domain::run::Slot;
use hvtui::domain::time::HostTime;
use hvtui::tui::core::{Key, Msg};
use hvtui::tui::screens::cluster::rows::{RowId, rows};
use hvtui::tui::screens::users::users;
use serde_json::{Value, json};

use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until};
use crate::common::world::{FREE, START, Story, busy, plan, press, run_id, spec};
use crate::local_runs::Person;
use crate::screens::{COLOR, shoot, text};
use crate::telemetry;

const GPU: &str = "GPU-00000000-0000-4000-8000-000000000000";
const SLICES: [&str; 2] =
    ["MIG-00000000-0000-4000-8000-000000000000", "MIG-00000000-0000-4000-8000-000000000002"];

/// A GPU with two slices of which one is in use, one with MIG mode on and no slice, and one without MIG mode.
fn script() -> Value {
    json!({ "gpus": [
        { "mig": true, "slices": [
            { "profile": "3g.71gb", "instance": [1, 0], "slices": [4, 3], "multiprocessors": 60, "memory_total": 76_000_000_000_u64 },
            null,
            { "memory_used": 2_u64 << 30, "processes": [{ "pid": 4_000_000, "memory": 2_u64 << 30 }] },
        ] },
        { "mig": true },
        {},
    ] })
}

struct Host {
    fake: FakeNvml,
    person: Person,
}

impl Host {
    fn new() -> Self {
        let person = Person::new(1);
        let leases = person.home().join("leases");
        std::fs::create_dir(&leases).unwrap();
        let hosts = format!(
            "[[host]]\nname = \"here\"\naddress = \"local\"\nlease_dir = \"{}\"\n",
            leases.canonicalize().unwrap().display()
        );
        std::fs::write(person.home().join("hosts.toml"), hosts).unwrap();
        Self { fake: FakeNvml::new(&script()), person }
    }

    fn hvtui(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.person.hvtui(args);
        command.envs(self.fake.env());
        command
    }

    /// What it prints, and what it says beside that.
    fn said(&self, args: &[&str]) -> (String, String) {
        let out = self.hvtui(args).output_in_time().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&out.stdout), text(&out.stderr))
    }

    /// A run on one slice that tells in a file what it sees, and goes on until that file is gone.
    fn hold(&self, slice: &str) -> Child {
        let file = self.person.home().join(slice.replace(':', "-"));
        let sh = format!(
            "echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK > {0}.part; mv {0}.part {0}; while [ -e {0} ]; do sleep 0.05; done",
            file.display()
        );
        let mut command = self.hvtui(&["run", "--gpus", slice, "--", "sh", "-c", &sh]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the run has begun", || file.exists());
        child
    }

    fn seen(&self, slice: &str) -> String {
        std::fs::read_to_string(self.person.home().join(slice.replace(':', "-"))).unwrap().trim().to_owned()
    }

    fn end(&self, slice: &str, mut child: Child) {
        std::fs::remove_file(self.person.home().join(slice.replace(':', "-"))).unwrap();
        assert!(end_of(&mut child).success());
    }
}

#[test]
fn slices_are_rows_of_the_table_and_of_the_json() {
    let host = Host::new();
    let (table, err) = host.said(&["watch", "--once"]);
    let row = |begins: &str| {
        let found = table.lines().find(|line| line.trim_start().starts_with(begins));
        found.unwrap_or_else(|| panic!("no row {begins}:\n{table}\n{err}"))
    };
    assert!(row("100 ").contains("└ MIG 3g.71gb") && row("100 ").contains("free"), "{table}");
    assert!(row("102 ").contains("└ MIG 1g.18gb") && row("102 ").contains("2.0/18 G"), "{table}");
    assert!(
        row("100 ").contains("n/a") && !row("100 ").contains("0 %"),
        "its utilisation is not told: {table}"
    );
    assert!(table.contains("MIG, 2 slices, which take the ranks"), "{table}");
    assert!(table.contains("MIG, no slices"), "{table}");
    let at = |begins: &str| table.lines().position(|line| line == row(begins)).unwrap();
    assert!(at("0 ") < at("100 ") && at("100 ") < at("102 ") && at("102 ") < at("1 "), "{table}");
    assert_eq!(table.matches("4000000").count(), 1, "a process of a slice is told once: {table}");

    let (tick, _) = host.said(&["watch", "--once", "--json"]);
    let tick: Value = serde_json::from_str(tick.lines().next().unwrap()).unwrap();
    let told = &tick["hosts"][0];
    assert_eq!(told["slots"], 3, "two slices and a GPU");
    let gpus = told["info"]["gpus"].as_array().unwrap();
    let indices: Vec<u64> = gpus.iter().map(|gpu| gpu["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 100, 102, 1, 2]);
    assert_eq!((&gpus[0]["slices"], &gpus[3]["slices"], gpus[4].get("slices")), (&json!(2), &json!(0), None));
    assert_eq!((&gpus[1]["parent"], &gpus[1]["uuid"]), (&json!(0), &json!(SLICES[0])));
    let instance = json!({
        "gpu_instance": 1, "compute_instance": 0, "gpu_slices": 4, "compute_slices": 3, "multiprocessors": 60,
    });
    assert_eq!(gpus[1]["instance"], instance);
    assert_eq!(told["sample"]["gpus"][1]["util"], Value::Null);
    let free: Vec<bool> =
        told["gpus"].as_array().unwrap().iter().map(|gpu| gpu["free"].as_bool().unwrap()).collect();
    assert_eq!(free, [false, true, false, false, true]);

    let (filtered, _) = host.said(&["watch", "--once", "--filter", "free"]);
    let rows: Vec<&str> = filtered
        .lines()
        .filter_map(|line| line.split_whitespace().next().filter(|word| word.parse::<u32>().is_ok()))
        .collect();
    assert_eq!(rows, ["100", "2"], "{filtered}");
    let (by_index, _) = host.said(&["watch", "--once", "--filter", "gpu==102"]);
    assert!(by_index.contains("1g.18gb") && !by_index.contains("3g.71gb"), "{by_index}");
}

#[test]
fn the_activity_of_a_slice_is_told_by_its_gpu_instance() {
    let mut script = script();
    let slices = script["gpus"][0]["slices"].as_array_mut().unwrap();
    slices[0]["gpm"] = json!([93.4, 41.6, 38.0]);
    (slices[2]["gpm"], slices[2]["instance"]) = (json!([7.0, 0.0, 3.0]), json!([5, 0]));
    // two compute instances of one GPU instance
    slices.extend([json!({ "instance": [6, 0] }), json!({ "instance": [6, 1] })]);
    let fake = FakeNvml::new(&script);
    let mut sampler = telemetry::start(&fake);
    let told = |gpu: &GpuSample| {
        (
            gpu.index,
            [&gpu.sm_active_percent, &gpu.tensor_active_percent, &gpu.dram_active_percent]
                .map(Reading::clone),
        )
    };
    let first = sampler.sample(|| HostTime(1_000_000));
    assert_eq!(
        told(&first.gpus[1]).1[0],
        Reading::failed("not read yet"),
        "it is of the time between two samples"
    );
    let second = sampler.sample(|| HostTime(2_000_000));
    let none = [const { Reading::Unsupported }; 3];
    let expected = [
        (0, none.clone()),
        (100, [93, 42, 38].map(Reading::Value)),
        (102, [7, 0, 3].map(Reading::Value)),
        (103, none.clone()),
        (104, none.clone()),
    ];
    assert_eq!(second.gpus.iter().take(5).map(told).collect::<Vec<_>>(), expected);
    // without GPM nothing is told, and nothing has failed
    script["gpus"][0]["gpm"] = Value::Null;
    let fake = FakeNvml::new(&script);
    let mut sampler = telemetry::start(&fake);
    sampler.sample(|| HostTime(1_000_000));
    assert_eq!(told(&sampler.sample(|| HostTime(2_000_000)).gpus[1]), (100, none));
}

#[test]
fn runs_on_two_slices_of_one_gpu_go_on_beside_each_other_and_none_gets_the_whole() {
    let host = Host::new();
    let mut script = script();
    script["gpus"][0]["slices"][2] = json!({});
    host.fake.set(&script);
    let (one, other) = (host.hold("here:100"), host.hold("here:102"));
    assert_eq!(host.seen("here:100"), format!("{} 0", SLICES[0]));
    assert_eq!(host.seen("here:102"), format!("{} 0", SLICES[1]));
    let (table, _) = host.said(&["watch", "--once"]);
    assert_eq!(table.matches("leased by").count(), 2, "{table}");
    let (_, again) = host.said(&["run", "--gpus", "here:102", "--", "true"]);
    assert!(again.contains("here:102 is busy: leased by"), "{again}");
    for whole in ["here:0", &format!("here:{GPU}")] {
        let (_, why) = host.said(&["run", "--gpus", whole, "--", "true"]);
        assert!(why.contains("has no slot") && why.contains("MIG, 2 slices"), "{why}");
    }
    // MIG mode is switched off under them: the holder of a slice has it still
    script["gpus"][0] = json!({});
    host.fake.set(&script);
    let (_, why) = host.said(&["run", "--gpus", "here:0", "--", "true"]);
    assert!(why.contains("leased"), "{why}");
    host.end("here:100", one);
    host.end("here:102", other);
    let (_, said) = host.said(&["run", "--gpus", "here:0", "--", "true"]);
    assert!(said.contains("finished"), "{said}");
}

#[test]
fn slices_of_a_gpu_that_was_leased_before_it_was_cut_are_leased() {
    let host = Host::new();
    let run = host.hold("here:2");
    let mut script = script();
    script["gpus"][2] = json!({ "mig": true, "slices": [{}] });
    host.fake.set(&script);
    let (table, _) = host.said(&["watch", "--once", "--filter", "gpu==300"]);
    assert!(table.contains("leased by"), "{table}");
    let (_, why) = host.said(&["run", "--gpus", "here:300", "--", "true"]);
    assert!(why.contains("here:300 is busy: leased by"), "{why}");
    let (_, why) = host.said(&["run", "--share", "--gpus", "here:300", "--", "true"]);
    assert!(why.contains("here:300 is busy: leased by"), "the lease of the whole is not shared: {why}");
    let (_, why) = host.said(&["run", "--free", "2", "--", "true"]);
    assert!(why.contains("1 is free"), "the other slice: {why}");
    host.end("here:2", run);
    let (_, said) = host.said(&["run", "--free", "2", "--", "true"]);
    assert!(said.contains("finished"), "{said}");
}

#[test]
fn a_filter_on_what_slices_never_tell_does_not_wait_for_them() {
    let host = Host::new();
    let wait = ["run", "--wait", "--free", "2", "--filter", "util<5", "--", "true"];
    let (_, why) = host.said(&wait);
    assert!(why.contains("util<5 (never known of a MIG slice) excludes 2"), "{why}");
}

#[test]
fn a_launch_on_slices_of_one_gpu_says_what_nccl_can_not_do() {
    let host = Host::new();
    let mut script = script();
    script["gpus"][0]["slices"][2] = json!({});
    host.fake.set(&script);
    let shell = ["--", "sh", "-c", "echo \"$RANK sees $CUDA_VISIBLE_DEVICES as $LOCAL_RANK\""];
    let line = |kind: &'static str, gpus: &'static str| {
        [&["run", "--kind", kind, "--gpus", gpus][..], &shell].concat()
    };
    let (printed, said) = host.said(&line("torch", "here:100,102"));
    assert!(said.contains("ranks on MIG slices of one GPU can't reach each other by NCCL"), "{said}");
    for (rank, slice) in SLICES.iter().enumerate() {
        assert!(printed.contains(&format!("{rank} sees {slice} as 0")), "{printed}");
    }
    let (_, said) = host.said(&line("torch", "here:100,2"));
    assert!(!said.contains("NCCL"), "of different GPUs: {said}");
    let (_, said) = host.said(&line("plain", "here:100,102"));
    assert!(!said.contains("NCCL"), "{said}");
    let several =
        [&["run", "--kind", "plain", "--gpus-per-rank", "2", "--gpus", "here:100,102"][..], &shell].concat();
    let (_, said) = host.said(&several);
    assert!(said.contains("rank 0 gets several MIG slices"), "{said}");
}

/// A host whose GPU 1 of three has two slices, of which wang computes on the second.
fn story() -> Story {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 3);
    story.sample("gpu-a", 10.0, &[busy(90, "li"), FREE, FREE]);
    cut(&mut story, 2);
    story
}

/// Cuts GPU 1 of the host into so many slices.
fn cut(story: &mut Story, slices: u32) {
    let host = HostId::from("gpu-a");
    let state = &story.model.world.hosts[&host];
    let (info, (_, sample)) = (state.info.as_ref().unwrap(), state.sample.as_ref().unwrap());
    let instance = MigInstance {
        gpu_instance: Some(9),
        compute_instance: Some(0),
        gpu_slices: Some(1),
        compute_slices: Some(1),
        multiprocessors: Some(16),
    };
    let slice = |number: u32| GpuInfo {
        uuid: format!("MIG-{number}").as_str().into(),
        name: "NVIDIA H200 MIG 1g.18gb".to_owned(),
        parent: Some(1),
        instance: Some(instance),
        ..GpuInfo::unknown(slice_index(1, number))
    };
    let live = |number: u32| GpuSample {
        memory_used: Reading::Value(u64::from(number) * (9 << 30)),
        memory_total: Reading::Value(18 << 30),
        sm_active_percent: Reading::Value(number * 62),
        tensor_active_percent: Reading::Value(number * 40),
        dram_active_percent: Reading::Value(number * 17),
        processes: Reading::Value(
            (0..number)
                .map(|_| GpuProcess {
                    user: Reading::Value("wang".to_owned()),
                    command: Reading::Value("python serve.py".to_owned()),
                    memory: Reading::Value(9 << 30),
                    ..GpuProcess::unknown(77)
                })
                .collect(),
        ),
        ..GpuSample::unknown(slice_index(1, number))
    };
    let mut gpus: Vec<GpuInfo> = info.gpus.iter().filter(|gpu| !gpu.is_slice()).cloned().collect();
    let mut samples: Vec<GpuSample> = sample.gpus.iter().filter(|gpu| !gpu.is_slice()).cloned().collect();
    gpus[1].slices = Some(slices);
    (samples[1].util, samples[1].mig) = (Reading::Unsupported, Reading::Value(true));
    gpus.splice(2..2, (0..slices).map(slice));
    samples.splice(2..2, (0..slices).map(live));
    let info = HostInfo { gpus, ..(**info).clone() };
    let sample = HostSample { gpus: samples, ..(**sample).clone() };
    story.tell(Origin::Host(host.clone()), Event::HostDescribed { info: Arc::new(info) });
    story.tell(Origin::Host(host), Event::HostSampled { sample: Arc::new(sample) });
}

fn line<'a>(screen: &'a str, holds: &str) -> &'a str {
    screen.lines().find(|line| line.contains(holds)).unwrap_or_else(|| panic!("no {holds}:\n{screen}"))
}

#[test]
fn slices_are_rows_and_cells_of_the_cluster_screen() {
    shoot("cluster-mig", story(), &[(80, 24), (200, 50)], COLOR);
    let mut none = story();
    cut(&mut none, 0);
    none.send(Msg::Resize(120, 40));
    let shown = text(&none.model, COLOR);
    assert!(line(&shown, "no slices").contains("MIG"), "{shown}");
    assert!(line(&shown, "hvtui").contains("3 GPUs: 1 free"), "{shown}");
    let mut cells = story();
    press(&mut cells, "H");
    shoot("heat-mig", cells, &[(80, 24)], COLOR);
}

#[test]
fn a_slice_that_is_fully_busy_is_told_in_full() {
    let mut story = story();
    let host = HostId::from("gpu-a");
    let mut sample = HostSample::clone(&story.model.world.hosts[&host].sample.as_ref().unwrap().1);
    sample.gpus[3].sm_active_percent = Reading::Value(100);
    story.tell(Origin::Host(host), Event::HostSampled { sample: Arc::new(sample) });
    for (columns, rows) in [(80, 24), (120, 40), (200, 50)] {
        story.send(Msg::Resize(columns, rows));
        let shown = text(&story.model, COLOR);
        assert!(line(&shown, " 201 ").contains("SM100 "), "{shown}");
    }
}

#[test]
fn a_leased_gpu_that_is_cut_counts_by_its_slices() {
    let mut story = story();
    let host = HostId::from("gpu-a");
    let gpus = story.model.world.hosts[&host].info.as_ref().unwrap().gpus.clone();
    let lease = Lease { user: Some("chen".to_owned()), pid: Some(9), ..Lease::unknown(gpus[1].uuid.clone()) };
    let mut leases = Leases { held: vec![lease], ..Leases::default() };
    leases.extend_to_slices(&gpus);
    story.tell(Origin::Host(host), Event::LeasesTold { leases });
    let all: Vec<(String, usize)> =
        users(&story.model).into_iter().map(|user| (user.name, user.gpus)).collect();
    assert_eq!(all, [("chen".to_owned(), 2), ("li".to_owned(), 1), ("wang".to_owned(), 1)]);
    story.send(Msg::Resize(120, 40));
    press(&mut story, "\n");
    let shown = text(&story.model, COLOR);
    assert!(shown.contains("2 GPUs leased"), "{shown}");
}

#[test]
fn slices_are_picked_and_filtered_and_their_gpu_is_not() {
    let mut story = story();
    story.send(Msg::Resize(120, 40));
    let shown = text(&story.model, COLOR);
    assert!(line(&shown, "hvtui").contains("4 GPUs: 2 free"), "a slice and a GPU: {shown}");
    press(&mut story, "jj ");
    assert!(story.model.ui.cluster.picks.is_empty(), "the GPU is not for ranks");
    assert!(text(&story.model, COLOR).contains("gpu-a:1 is not for ranks: MIG, 2 slices"));
    press(&mut story, " ");
    let picked: Vec<u32> = story.model.ui.cluster.picks[&HostId::from("gpu-a")].keys().copied().collect();
    assert_eq!(picked, [200]);
    let mut places = |filter: &str| {
        press(&mut story, "/");
        story.send(Msg::Key(Key::ctrl('u')));
        press(&mut story, filter);
        press(&mut story, "\n");
        let gpu = |row: RowId| match row {
            RowId::Gpu(_, uuid, _) => Some(uuid.to_string()),
            _ => None,
        };
        rows(&story.model).into_iter().filter_map(gpu).collect::<Vec<_>>()
    };
    assert_eq!(places("gpu==201"), ["MIG-1"]);
    assert_eq!(places("user==wang"), ["MIG-1"]);
    assert_eq!(places("free & model~mig"), ["MIG-0"]);
}

#[test]
fn free_ones_are_whole_gpus_or_slices_and_never_both() {
    let mut story = story();
    let mut free = |count: &str| {
        press(&mut story, "f");
        press(&mut story, count);
        press(&mut story, "\n");
        let picked = story.model.ui.cluster.picks.get(&HostId::from("gpu-a"));
        let picked: Vec<u32> = picked.into_iter().flat_map(|gpus| gpus.keys().copied()).collect();
        (picked, story.model.ui.toasts.back().unwrap().text.clone())
    };
    assert_eq!(free("1").0, [2]);
    assert_eq!(free("2"), (vec![2], "only 1 free of 2 asked for".to_owned()), "and a slice is");
}

#[test]
fn a_slice_has_its_own_detail() {
    let mut story = story();
    story.send(Msg::Resize(120, 40));
    press(&mut story, "jjjj\n");
    let shown = text(&story.model, COLOR);
    assert!(shown.contains("slice 201 of GPU 1"), "{shown}");
    let made_of = "GPU instance 9 · compute instance 0 · 1 memory slice · 1 compute slice · 16 SMs";
    assert!(shown.contains(made_of), "{shown}");
    assert!(shown.contains("SM active 62 % · tensor 40 % · DRAM 17 %"), "{shown}");
    assert!(!shown.contains("power of limit"), "no graph of what is not told: {shown}");
    assert!(shown.contains("NVML tells no utilisation") && shown.contains("python serve.py"), "{shown}");
}

#[test]
fn what_is_known_of_other_gpus_stays_theirs_when_slices_come_and_go() {
    let mut story = story();
    let util = |story: &Story| {
        let state = &story.model.world.hosts[&HostId::from("gpu-a")];
        let past = state.past.front().unwrap();
        past.gpus.iter().map(hvtui::domain::past::PastGpu::util).collect::<Vec<_>>()
    };
    assert_eq!(util(&story), [Some(0.9), Some(0.0), None, None, Some(0.0)]);
    cut(&mut story, 0);
    assert_eq!(util(&story), [Some(0.9), Some(0.0), Some(0.0)]);
    assert_eq!(story.model.world.hosts[&HostId::from("gpu-a")].gpu_events.newest().count(), 0);
}

#[test]
fn a_late_sample_with_the_slices_of_before_is_taken_by_indices() {
    let mut story = story();
    let host = HostId::from("gpu-a");
    let newest = |story: &Story| story.model.world.hosts[&host].sample.as_ref().unwrap().1.clone();
    let utils = |story: &Story| {
        let gpus = newest(story).gpus.clone();
        gpus.into_iter().map(|gpu| (gpu.index, gpu.util.value().copied())).collect::<Vec<_>>()
    };
    let mut late = HostSample::clone(&newest(&story));
    late.gpus[4].util = Reading::Value(70);
    let late = Event::HostSampled { sample: Arc::new(late) };
    cut(&mut story, 0);
    story.tell(Origin::Host(host.clone()), late.clone());
    assert_eq!(utils(&story), [(0, Some(90)), (1, None), (2, Some(70))]);
    cut(&mut story, 3);
    story.tell(Origin::Host(host.clone()), late);
    assert_eq!(
        utils(&story),
        [(0, Some(90)), (1, None), (200, None), (201, None), (202, None), (2, Some(70))]
    );
    let state = &story.model.world.hosts[&host];
    let new = &newest(&story).gpus[4];
    assert_eq!(
        new.memory_used,
        Reading::failed("not read yet"),
        "a slice that the late sample does not have"
    );
    assert_eq!(state.past.back().unwrap().gpus.len(), 6);
}

#[test]
fn the_launch_form_says_what_ranks_on_slices_see() {
    let mut story = story();
    press(&mut story, "jjj l");
    let all = "each rank sees all of its host";
    let shown = text(&story.model, COLOR);
    assert!(shown.contains(all), "{shown}");
    let slots = vec![("gpu-a", Slot::Gpu { index: 200, uuid: "MIG-0".into() })];
    story.send(Msg::LaunchPlanned(Ok(plan(spec(run_id(), "digits", &slots, START)))));
    let shown = text(&story.model, COLOR);
    let own = "on hosts with MIG slices each rank sees its own alone";
    assert!(shown.contains(own) && !shown.contains(all), "{shown}");
}
