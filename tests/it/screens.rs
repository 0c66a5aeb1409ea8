//! Every screen in its states at three sizes, as text; some without colour and in ASCII.

use std::path::Path;
use std::sync::Arc;

use crate::common::world;
use crate::common::world::{
    FREE, Story, busy, cluster, cpu_slots, failed, many_ranks, playback_state, press, recordings, training,
    uuid,
};
use hvtui::doctor::CHECKS;
use hvtui::domain::collectives::{Call, CallState, GroupCalls, HostCollectives, ProcessCollectives};
use hvtui::domain::container::{ContainerOptions, Volume};
use hvtui::domain::doctor::{Matrix, Row, Verdict};
use hvtui::domain::environment::{Bound, EnvironmentPlan, Limit};
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::gpu::{GpuSample, Reading, RunOfProcess};
use hvtui::domain::host::{GpuAbsenceReason, HostInfo, LinkState};
use hvtui::domain::ids::{HostId, Rank, RunId};
use hvtui::domain::lease::{Lease, Leases, Ticket};
use hvtui::domain::nccl_timing::{CollectiveTiming, CommId};
use hvtui::domain::options::RunOptions;
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::preflight::{Finding, Mark};
use hvtui::domain::question::{Question, Subject};
use hvtui::domain::run::{JobKind, KeptRecordings, RunStage};
use hvtui::domain::stacks::{ProcessStacks, Taker};
use hvtui::domain::standstill::StalledPhase;
use hvtui::domain::sync::SyncPlan;
use hvtui::domain::time::HostTime;
use hvtui::domain::timing::Phase;
use hvtui::launch::again::HostsOption;
use hvtui::launch::error::LaunchError;
use hvtui::launch::plan::LaunchPlan;
use hvtui::launch::request::{LaunchRequest, PlacementSpec};
use hvtui::tui::canvas::{Caps, ColorDepth};
use hvtui::tui::core::{Effect, Key, KeyCode, Level, Look, LookOf, Msg, Screen};
use hvtui::tui::screens::cluster::rows::message_lines;
use hvtui::tui::screens::model::Overlay;
use hvtui::tui::screens::view::draw;
use hvtui::tui::screens::{Model, update};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];
/// A terminal on a screen on the wall.
const WALL: (u16, u16) = (400, 100);
pub(crate) const COLOR: Caps = Caps { color: ColorDepth::Full, ascii: false };
const PLAIN: Caps = Caps { color: ColorDepth::None, ascii: false };
const ASCII: Caps = Caps { color: ColorDepth::None, ascii: true };

pub(crate) fn text(model: &Model, caps: Caps) -> String {
    let mut buf = Buffer::empty(Rect::new(0, 0, model.size.0, model.size.1));
    draw(model, caps, &mut buf);
    let mut out = String::new();
    for row in buf.content.chunks(usize::from(model.size.0)) {
        let mut skip = 0;
        let mut line = String::new();
        for cell in row {
            if skip == 0 {
                line.push_str(cell.symbol());
                skip = unicode_width::UnicodeWidthStr::width(cell.symbol()).max(1);
            }
            skip -= 1;
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

pub(crate) fn shoot(name: &str, mut story: Story, sizes: &[(u16, u16)], caps: Caps) {
    shoot_now(name, &mut story, sizes, caps);
}

/// In the middle of a story.
fn shoot_now(name: &str, story: &mut Story, sizes: &[(u16, u16)], caps: Caps) {
    for size in sizes {
        story.send(Msg::Resize(size.0, size.1));
        insta::assert_snapshot!(format!("{name}-{}x{}", size.0, size.1), text(&story.model, caps));
    }
}

#[test]
fn cluster_before_anything_is_known() {
    let mut story = Story::new(&["gpu-a", "gpu-b", "login-node-with-a-long-name"]);
    story.link("gpu-a", LinkState::Connecting { to: "li@10.0.0.11:22".to_owned() });
    story.link("gpu-b", LinkState::Installing { bytes: 14_800_000 });
    story.wait_ms(3_200);
    shoot("cluster-connecting", story, &SIZES, COLOR);
}

#[test]
fn a_host_without_gpus_says_why_as_far_as_there_is_room() {
    let mismatch = |hosts: &[&str]| {
        let mut story = Story::new(hosts);
        for name in hosts {
            story.cpu_host(name, 64);
            let host = HostId::from(*name);
            let mut info = HostInfo::clone(story.model.world.hosts[&host].info.as_ref().unwrap());
            info.gpu_absence.as_mut().unwrap().reason = GpuAbsenceReason::DriverMismatch;
            story.tell(Origin::Host(host), Event::HostDescribed { info: Arc::new(info) });
            story.sample(name, 12.0, &[]);
        }
        story
    };
    shoot("cluster-no-driver", mismatch(&["gpu-a", "gpu-b-long-name"]), &SIZES, COLOR);
    let mut mixed = mismatch(&["gpu-a", "gpu-b"]);
    mixed.gpu_host("gpu-b", 2).sample("gpu-b", 10.0, &[FREE, FREE]);
    shoot("cluster-no-driver-mixed", mixed, &SIZES, COLOR);
}

#[test]
fn cluster_of_this_machine_alone() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 4);
    for second in 0..40u8 {
        story.sample("local", f32::from(second * 2), &[]).wait_ms(1000);
    }
    press(&mut story, " +");
    shoot("cluster-one-cpu-host", story, &SIZES, COLOR);
}

#[test]
fn cluster_with_picks_and_trouble() {
    let mut story = cluster();
    press(&mut story, "jjj  ");
    shoot("cluster-mixed", story, &[SIZES[0], SIZES[1], SIZES[2], WALL], COLOR);
}

/// A GPU of a story that another hvtui holds.
fn lease(gpu: u32, user: &str, own: bool) -> Lease {
    Lease {
        gpu: uuid("gpu-b", gpu),
        user: Some(user.to_owned()),
        own,
        pid: Some(7),
        command: None,
        run: Some(RunId::new(1_795_000_000_000, u128::from(gpu))),
        name: Some("mnist".to_owned()),
        rank: Some(Rank(gpu)),
        since: Some(HostTime(1)),
    }
}

#[test]
fn leases_of_others_and_of_mine() {
    let mut story = cluster();
    let held = vec![lease(0, "chen", false), lease(2, "wang", false), lease(3, "li", true)];
    let waits = Ticket {
        id: RunId::new(1, 1),
        user: "zhao".to_owned(),
        own: false,
        name: "big".to_owned(),
        gpus: vec![uuid("gpu-b", 0)],
    };
    let leases = Leases { held, queue: vec![waits], ..Leases::default() };
    story.tell(Origin::Host(HostId::from("gpu-b")), Event::LeasesTold { leases });
    press(&mut story, "jjjjjjjjj");
    shoot("cluster-leased", story, &[(120, 40)], COLOR);
    let mut story = cluster();
    let leases = Leases { held: vec![lease(0, "chen", false)], ..Leases::default() };
    story.tell(Origin::Host(HostId::from("gpu-b")), Event::LeasesTold { leases });
    press(&mut story, "jjjjjjjjjj");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("detail-leased", story, &[(80, 24)], COLOR);
}

#[test]
fn processes_are_told_with_their_run_and_their_container() {
    let contained = || {
        let mut story = cluster();
        let host = HostId::from("gpu-a");
        let (_, sample) = story.model.world.hosts[&host].latest().expect("a sample");
        let mut sample = sample.clone();
        let run = RunOfProcess { id: world::run_id(), rank: Some(Rank(1)) };
        for (gpu, run) in sample.gpus.iter_mut().zip([Some(run), None]) {
            let Reading::Value(processes) = &mut gpu.processes else { continue };
            for process in processes {
                process.run.clone_from(&run);
                process.container = Some("59c313908f42".to_owned());
            }
        }
        story.tell(Origin::Host(host), Event::HostSampled { sample: Arc::new(sample) });
        story
    };
    shoot("cluster-contained", contained(), &[(120, 40)], COLOR);
    let mut story = contained();
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("detail-contained", story, &[(80, 24), (120, 40)], COLOR);
}

#[test]
fn cluster_filtered_and_folded() {
    let mut story = cluster();
    press(&mut story, "/");
    press(&mut story, "util<5 & mem_free>40G");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    press(&mut story, "zs");
    shoot("cluster-filtered", story, &SIZES, COLOR);
}

#[test]
fn cluster_while_a_filter_is_typed() {
    let mut story = cluster();
    press(&mut story, "/free & model~");
    shoot("cluster-filter-typed", story, &[(80, 24), (120, 40)], COLOR);
    let mut story = cluster();
    press(&mut story, "/free | utl<5 & user==li");
    shoot("cluster-filter-wrong", story, &[(80, 24)], COLOR);
    let mut story = cluster();
    press(&mut story, "/user!=x & cmd~/train");
    shoot("cluster-filter-wrong-at-the-end", story, &[(80, 24)], ASCII);
}

#[test]
fn cluster_with_a_range_and_picks_that_the_filter_hides() {
    let mut story = cluster();
    press(&mut story, "j /free");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    press(&mut story, "gjvjj");
    shoot("cluster-range", story, &[(120, 40)], PLAIN);
}

#[test]
fn cluster_with_old_data() {
    let mut story = cluster();
    story.wait_ms(8_000);
    shoot("cluster-old", story, &[(120, 40)], COLOR);
}

#[test]
fn cluster_without_colour_and_in_ascii() {
    let mut story = cluster();
    press(&mut story, "jjj  ");
    shoot("cluster-no-colour", cluster(), &[(80, 24)], PLAIN);
    shoot("cluster-ascii", story, &[(80, 24), (120, 40)], ASCII);
}

#[test]
fn detail_of_a_gpu_and_a_host() {
    let mut story = cluster();
    press(&mut story, "j");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("detail-gpu", story, &SIZES, COLOR);
    let mut story = cluster();
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("detail-host", story, &SIZES, COLOR);
    let mut story = cluster();
    press(&mut story, "G");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("detail-refused", story, &[(80, 24)], COLOR);
}

/// A GPU for each thing that can be wrong.
fn unhealthy() -> Story {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-a", 8).gpu_host("gpu-b", 2);
    let faults: [fn(&mut GpuSample); 8] = [
        |gpu| gpu.ecc_uncorrected = Reading::Value(2),
        |gpu| gpu.row_remap_failed = Reading::Value(true),
        |gpu| gpu.row_remap_pending = Reading::Value(true),
        |gpu| gpu.pages_pending = Reading::Value(true),
        |gpu| gpu.temperature = Reading::Value(84),
        |gpu| gpu.temperature = Reading::Value(88),
        |gpu| gpu.pcie_width = Reading::Value(8),
        |gpu| {
            gpu.throttle = Reading::Value(vec!["sw power cap".to_owned()]);
            gpu.pcie_gen = Reading::Value(3);
        },
    ];
    story.faults.insert("gpu-a", faults.into_iter().enumerate().collect());
    story.faults.insert("gpu-b", vec![(0, |gpu: &mut GpuSample| *gpu = GpuSample::failed(0, "GPU is lost"))]);
    story.sample("gpu-a", 31.0, &[busy(90, "li"); 8]);
    story.sample("gpu-b", 3.0, &[FREE, FREE]);
    story.wait_ms(900);
    story
}

#[test]
fn what_is_wrong_with_a_gpu_is_said_in_a_word() {
    shoot("cluster-unhealthy", unhealthy(), &SIZES, COLOR);
    let mut story = unhealthy();
    press(&mut story, "j");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("detail-unhealthy", story, &[(80, 24), (120, 40)], COLOR);
}

fn preview() -> std::sync::Arc<LaunchPlan> {
    world::plan(world::spec(
        world::run_id(),
        "digits",
        &world::gpu_slots(&[("gpu-a", 2), ("gpu-a", 3), ("gpu-b", 5)]),
        world::START,
    ))
}

/// What the hosts of the preview answer; `wrong` on gpu-b.
fn found(story: &mut Story, effects: &[Effect], wrong: Option<&str>) {
    let [Effect::Preflight(number, _), Effect::CheckHosts(look)] = effects else {
        panic!("the hosts are asked: {effects:?}")
    };
    story.send(Msg::HostsChecked(look.number, Box::default(), true));
    for name in ["gpu-a", "gpu-b"] {
        let good = ["folder /home/li", "hvtui is /home/li/.cache/hvtui/hvtui"];
        let mut findings: Vec<Finding> = good.map(|text| Finding::new(Mark::Good, text)).to_vec();
        findings.extend(wrong.filter(|_| name == "gpu-b").map(|text| Finding::new(Mark::Bad, text)));
        story.send(Msg::Preflight(*number, HostId::from(name), findings));
    }
}

#[test]
fn launch_form_that_can_start() {
    let mut story = cluster();
    press(&mut story, "jjj  l");
    let effects = story.send(Msg::LaunchPlanned(Ok(preview())));
    found(&mut story, &effects, None);
    shoot("launch-ok", story, &SIZES, COLOR);
}

#[test]
fn launch_form_whose_hosts_lack_something() {
    let mut story = cluster();
    story.send(Msg::RunsListed(recordings()));
    press(&mut story, "jjj  l");
    press(&mut story, "hvtui tr");
    while story.model.ui.launch.asked > 1 {
        story.send(Msg::LaunchPlanned(Err(LaunchError::usage("older"))));
    }
    let effects = story.send(Msg::LaunchPlanned(Ok(preview())));
    let wrong = "command 'hvtui' not found on gpu-b (PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin)";
    found(&mut story, &effects, Some(wrong));
    shoot("launch-checks", story, &[(80, 24), (120, 40), (200, 50), WALL], COLOR);
}

/// A host that was lost five minutes ago and is tried again and again, with two of its GPUs picked.
fn lost_host() -> Story {
    let mut story = Story::new(&["gpu-a", "gpu-c"]);
    story.gpu_host("gpu-a", 4).gpu_host("gpu-c", 4);
    for _ in 0..20 {
        story.sample("gpu-a", 31.0, &[busy(97, "li"), FREE, FREE, FREE]);
        story.sample("gpu-c", 12.0, &[busy(88, "chen"), FREE, FREE, FREE]);
        story.wait_ms(1000);
    }
    press(&mut story, "GkK");
    let picks = [1, 2].map(|index| (index, uuid("gpu-c", index)));
    story.model.ui.cluster.picks.insert(HostId::from("gpu-c"), picks.into());
    story.down("gpu-c", "connection reset by 10.0.0.13:22");
    for _ in 0..20 {
        story.wait_ms(12_000).link("gpu-c", LinkState::Connecting { to: "li@10.0.0.13:22".to_owned() });
        story.wait_ms(3_000).down("gpu-c", "connect to 10.0.0.13:22: no route to host");
        story.sample("gpu-a", 31.0, &[busy(97, "li"), FREE, FREE, FREE]);
    }
    story.wait_ms(900);
    story
}

const LOST_SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

#[test]
fn a_host_that_is_lost_keeps_its_rows() {
    shoot("cluster-lost", lost_host(), &LOST_SIZES, COLOR);
    let mut story = lost_host();
    story.wait_ms(12_000).link("gpu-c", LinkState::Connecting { to: "li@10.0.0.13:22".to_owned() });
    shoot("cluster-lost-again", story, &[(80, 24)], COLOR);
    shoot("cluster-lost-ascii", lost_host(), &[(80, 24)], ASCII);
    let mut story = lost_host();
    press(&mut story, "l");
    shoot("launch-lost", story, &LOST_SIZES, COLOR);
}

#[test]
fn launch_form_with_mistakes() {
    let mut story = cluster();
    press(&mut story, "l");
    press(&mut story, " 'open");
    story.send(Msg::Key(Key::plain(KeyCode::Tab)));
    story.send(Msg::Key(Key::plain(KeyCode::Tab)));
    press(&mut story, "x");
    shoot("launch-mistakes", story, &SIZES, COLOR);
    let mut story = cluster();
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Err(LaunchError::usage("5 ranks asked for and 2 slots free on gpu-a, gpu-b: free some, or ask for fewer with the ranks field"))));
    shoot("launch-refused", story, &SIZES, COLOR);
    let mut story = cluster();
    press(&mut story, "l");
    let busy = "gpu-a:2 is busy: leased by wang for run 7QK2 (mnist) for 12 min";
    story.send(Msg::LaunchPlanned(Err(world::taken(busy))));
    shoot("launch-busy", story, &[(80, 24)], COLOR);
    let mut story = cluster();
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Err(LaunchError::usage("no slot"))));
    shoot("launch-ascii", story, &[(80, 24)], ASCII);
}

/// The Launch screen with this line in the command field, and the request that the line makes.
fn with_line(line: &str) -> (Story, Option<LaunchRequest>) {
    let mut story = cluster();
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Ok(preview())));
    let effects = story.send(Msg::Paste(line.to_owned()));
    let request = effects.into_iter().find_map(|effect| match effect {
        Effect::Preview(request) => Some(request),
        _ => None,
    });
    (story, request)
}

/// The answer to a request, as the launcher gives it: its remarks are the plan's.
fn planned(request: &LaunchRequest) -> std::sync::Arc<LaunchPlan> {
    let mut plan = (*preview()).clone();
    plan.remarks.clone_from(&request.remarks);
    std::sync::Arc::new(plan)
}

#[test]
fn launch_form_with_a_pasted_line() {
    let line = "mpirun -np 3 -H gpu-a:2,gpu-b:1 -x NCCL_DEBUG=INFO -x PATH --bind-to none -map-by slot -mca pml ob1 \\\n\
                -mca btl ^openib python train.py";
    let (mut story, request) = with_line(line);
    story.send(Msg::LaunchPlanned(Ok(planned(&request.unwrap()))));
    shoot("launch-line", story, &SIZES, COLOR);
    let (story, _) = with_line("horovodrun -np 2 -H gpu-a:1 gpu-b:1 python train.py");
    shoot("launch-line-fault", story, &SIZES, COLOR);
    let long = "horovodrun -np 2 -H gpu-a:1 gpu-b:1 python train.py --data /datasets/imagenet/2012/train --epochs 90 --out /runs/1";
    let (story, _) = with_line(long);
    shoot("launch-line-fault-far", story, &[(80, 24)], COLOR);
}

#[test]
fn launch_form_with_a_delegated_line() {
    let line =
        "horovodrun -np 2 --host-discovery-script hosts.sh -p 9435 --autotune-log a.csv python train.py";
    for (name, sizes, caps) in
        [("launch-line-delegated", &SIZES[..], COLOR), ("launch-line-delegated-least", &[(60, 15)], ASCII)]
    {
        let (mut story, request) = with_line(line);
        story.send(Msg::LaunchPlanned(Ok(planned(&request.unwrap()))));
        shoot(name, story, sizes, caps);
    }
}

#[test]
fn launch_form_with_a_line_whose_launcher_starts_the_ranks() {
    let (mut story, request) = with_line("mpirun -np 3 -H gpu-a:2,gpu-b:1 --rankfile ranks python train.py");
    story.send(Msg::LaunchPlanned(Ok(planned(&request.unwrap()))));
    shoot("launch-line-own-launcher", story, &SIZES, COLOR);
}

#[test]
fn launch_form_with_a_recipe() {
    let mut story = cluster();
    story.model.recipes = vec![
        LaunchRequest {
            name: Some("mnist-horovod".to_owned()),
            kind: Some(JobKind::Horovod),
            place: PlacementSpec::Count(Some(3)),
            env: [("NCCL_DEBUG".to_owned(), "WARN".to_owned())].into(),
            ..LaunchRequest::of(vec!["python".to_owned(), "tensorflow2_mnist.py".to_owned()])
        },
        LaunchRequest::of(vec!["true".to_owned()]),
    ];
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Ok(preview())));
    story.send(Msg::Key(Key::plain(KeyCode::BackTab)));
    story.send(Msg::Key(Key::plain(KeyCode::Right)));
    story.send(Msg::LaunchPlanned(Ok(preview())));
    shoot("launch-recipe", story, &SIZES, COLOR);
}

/// What ranks find around them, in the fields of the form and as what the plan says of it.
fn surrounded() -> (LaunchRequest, std::sync::Arc<LaunchPlan>) {
    let volume = |source: &str, target: &str, options: Option<&str>| Volume {
        source: source.to_owned(),
        target: target.to_owned(),
        options: options.map(str::to_owned),
    };
    let options = RunOptions {
        sync: Some(SyncPlan {
            dir: "/home/li/mnist".to_owned(),
            remote: "~/mnist".to_owned(),
            delete: false,
        }),
        container: Some(ContainerOptions {
            volumes: vec![volume("/data", "/data", Some("ro")), volume("~/.cache", "/cache", None)],
            arguments: vec!["--memory=64g".to_owned()],
            ..ContainerOptions::of("horovod/horovod:0.28.1")
        }),
        ..RunOptions::default()
    };
    let recipe = LaunchRequest {
        name: Some("mnist-horovod".to_owned()),
        kind: Some(JobKind::Horovod),
        place: PlacementSpec::Count(Some(3)),
        options: options.clone(),
        ..LaunchRequest::of(vec!["python".to_owned(), "tensorflow2_mnist.py".to_owned()])
    };
    let mut plan = (*preview()).clone();
    plan.spec.options = options;
    for host in &mut plan.hosts {
        let mut spec = plan.spec.clone();
        let limits = [(Limit::Core, Bound::At(0))].into();
        let environment = EnvironmentPlan { limits, ..EnvironmentPlan::default() };
        spec.options.environments = [(HostId::from("gpu-b"), environment)].into();
        host.run_spec = Some(Box::new(spec));
    }
    (recipe, std::sync::Arc::new(plan))
}

#[test]
fn launch_form_with_containers_and_a_folder_to_copy() {
    let (recipe, plan) = surrounded();
    let mut story = cluster();
    story.model.here.home = "/home/li".to_owned();
    story.model.recipes = vec![recipe];
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Ok(preview())));
    story.send(Msg::Key(Key::plain(KeyCode::BackTab)));
    story.send(Msg::Key(Key::plain(KeyCode::Right)));
    story.send(Msg::LaunchPlanned(Ok(plan)));
    shoot("launch-surroundings", story, &[(80, 24), (100, 30), (120, 40), (200, 50)], COLOR);
}

#[test]
fn launch_form_while_a_rare_field_is_written() {
    let mut story = cluster();
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Ok(preview())));
    for _ in 0..9 {
        story.send(Msg::Key(Key::plain(KeyCode::Tab)));
    }
    let focused = story.model.clone();
    for (field, text) in ["train", ".:out", "a b", "./x:/x"].iter().enumerate() {
        if field > 0 {
            story.send(Msg::Key(Key::plain(KeyCode::Tab)));
        }
        press(&mut story, text);
    }
    shoot("launch-surroundings-mistakes", story, &[(80, 24), (120, 40)], COLOR);
    let mut story = cluster();
    story.model = focused;
    shoot("launch-rare-field", story, &[(60, 15), (80, 24), (120, 40)], COLOR);
}

#[test]
fn run_while_its_folder_is_copied() {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-a", 4).gpu_host("gpu-b", 4);
    story.run("mnist", &world::gpu_slots(&[("gpu-a", 2), ("gpu-b", 0)]));
    story.model.ui.screen = Screen::Run;
    story.stage(RunStage::Connect, &[]).wait_ms(200).stage(RunStage::Sync, &["gpu-b"]).wait_ms(1_100);
    story.send(Msg::Syncing(world::run_id(), "12 M of 31 M  11 M/s  2 s left".to_owned()));
    shoot("run-syncing", story, &[(80, 24)], COLOR);
}

#[test]
fn run_while_ranks_meet() {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-a", 4).gpu_host("gpu-b", 4);
    story.run("mnist", &world::gpu_slots(&[("gpu-a", 2), ("gpu-a", 3), ("gpu-b", 0), ("gpu-b", 1)]));
    story.model.ui.screen = Screen::Run;
    story.stage(RunStage::Connect, &[]).wait_ms(200).stage(RunStage::Prepare, &[]).wait_ms(100);
    story.stage(RunStage::Start, &[]).wait_ms(300).stage(RunStage::Rendezvous, &["rank 3 on gpu-b:1"]);
    for rank in 0..3 {
        story.rank(rank, Event::RankStarted { pid: 4000 + rank, t: HostTime(1) });
        story.rank(rank, Event::RankWaits { ranks: vec![Rank(3)] });
        story.log(rank, "listening on 10.0.0.11:41003");
    }
    story.wait_ms(7_300);
    shoot("run-meeting", story, &SIZES, COLOR);
}

#[test]
fn run_in_training() {
    shoot("run-training", training(), &SIZES, COLOR);
    shoot("run-training", training(), &[WALL], COLOR);
    shoot("run-training-no-colour", training(), &[(80, 24), (120, 40)], PLAIN);
    shoot("run-training-ascii", training(), &[(120, 40)], ASCII);
    let mut story = training();
    press(&mut story, "tjjj");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("run-timeline", story, &SIZES, PLAIN);
}

/// A log with repeats, colours, levels, wide characters and bars that move.
fn logging() -> Story {
    let mut story = training();
    for rank in 0..4 {
        story.log(rank, "epoch 2 begins");
    }
    for _ in 0..12 {
        story.log(0, "waiting for the file system").wait_ms(5);
    }
    let long = "step 130 loss 0.164 \u{1b}[1mthroughput\u{1b}[0m 12,410 img/s 漢字の道 ".to_owned()
        + &"and so on ".repeat(12);
    story.log(1, &long);
    story.error_log(2, "\u{1b}[33mWARNING\u{1b}[0m loader: \u{1b}]0;owned\u{7}slow");
    for line in
        ["Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>", "KeyError: 'loss'"]
    {
        story.error_log(3, line);
    }
    story.wait_ms(300);
    for (rank, done) in [(0, 41), (2, 40)] {
        let bar = format!(" {done}%|\u{1b}[32m{}\u{1b}[0m| {done}/100", "█".repeat(done / 10));
        story.unfinished(rank, &bar);
    }
    story
}

#[test]
fn logs_are_folded_coloured_searched_and_wrapped() {
    shoot("run-logs", logging(), &[(80, 24), (120, 40)], COLOR);
    shoot("run-logs-ascii", logging(), &[(80, 24)], ASCII);
    let mut story = logging();
    press(&mut story, "we//loss [0-9.]+/");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("run-logs-search-wrap", story, &[(80, 24), (120, 40)], PLAIN);
    let mut story = logging();
    press(&mut story, "!");
    for code in [KeyCode::Tab, KeyCode::Right, KeyCode::Right] {
        story.send(Msg::Key(Key::plain(code)));
    }
    shoot("run-logs-warnings-sideways", story, &[(80, 24)], PLAIN);
}

#[test]
fn what_is_searched_and_what_a_rank_colours_is_seen_by_its_style() {
    let mut story = logging();
    press(&mut story, "/loader");
    let (size, mut seen) = ((120, 40), Vec::new());
    story.send(Msg::Resize(size.0, size.1));
    let mut buf = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    draw(&story.model, COLOR, &mut buf);
    for row in buf.content.chunks(usize::from(size.0)) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        if line.contains("WARNING loader: slow") {
            let styled = |what: &str| {
                let at = line.split(what).next().unwrap().chars().count();
                row[at].style()
            };
            seen.push((styled("WARNING").fg, styled("loader").add_modifier.contains(Modifier::REVERSED)));
        }
    }
    // one row is the table of ranks, where nothing is in colour
    assert!(seen.contains(&(Some(ratatui::style::Color::Yellow), true)), "{seen:?}");
}

/// Allreduce that runs behind the backward pass: nearly all of it on ranks 0 and 3, none on rank 1; rank 2 is in no
/// allreduce.
fn overlapping() -> Story {
    let mut story = training();
    for step in 121..=180 {
        let phases = |wait, transfer| [4_900, 14_200, 22_900, wait, transfer, 2_500];
        story.step_hiding(0, step, 0.17, phases(300, 1_100), 12_800);
        story.step(1, step, 0.17, phases(9_100, 5_400));
        story.step(2, step, 0.17, phases(0, 0));
        story.step_hiding(3, step, 0.17, phases(0, 40), 14_000);
        story.wait_ms(50);
    }
    let gpu = |util| world::Gpu { util, mem: 11, user: Some(("li", "hvtui train mnist")), throttle: &[] };
    story.sample("gpu-a", 40.0, &[world::FREE, world::FREE, gpu(98), gpu(71)]).sample(
        "gpu-b",
        38.0,
        &[gpu(99), gpu(97), world::FREE, world::FREE],
    );
    story
}

#[test]
fn the_rank_that_comes_last_to_nccl_s_collectives_is_told() {
    let mut story = training();
    for seq in 0..30 {
        for rank in 0..4 {
            let dur_ns = if rank == 3 { 2_300_000 } else { 4_400_000 };
            let timing = CollectiveTiming {
                comm: CommId(7),
                ranks: 4,
                comm_rank: rank,
                func: "AllReduce".to_owned(),
                seq,
                bytes: 25 << 20,
                datatype: "Float32".to_owned(),
                t: Some(HostTime(seq * 20_000)),
                dur_ns,
                gpu_ns: None,
                every: 8,
                lost: 0,
            };
            story.rank(rank, Event::CollectiveDone { timing: Box::new(timing) });
        }
    }
    shoot("run-collectives", story, &SIZES, COLOR);
}

#[test]
fn allreduce_that_is_hidden_is_told() {
    shoot("run-overlap", overlapping(), &SIZES, COLOR);
    let mut story = overlapping();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let (end, playhead) = (story.at, story.at);
    story.model.ui.run.window = Some(500_000);
    story.send(Msg::Playback(playback_state(playhead, end)));
    shoot("replay-overlap", story, &[(80, 24), (120, 40)], COLOR);
}

/// A run that goes on while its client is away for three seconds and comes back.
fn resumed() -> Story {
    let mut story = training();
    let since = story.at;
    story.wait_ms(3_000);
    story.tell(Origin::Run(world::run_id()), Event::Attached { since: Some(since), until: None });
    for step in 900..903 {
        story.wait_ms(60);
        for rank in 0..4 {
            story.step(rank, step, 0.12, world::phases(rank));
        }
    }
    story
}

#[test]
fn the_time_in_which_nobody_followed_is_drawn() {
    let mut story = resumed();
    press(&mut story, "t");
    story.model.ui.run.window = Some(5_000_000);
    let spans = story.model.shown_run().map(|(_, run)| run.unattended.clone()).unwrap_or_default();
    shoot("run-unattended", story, &[(80, 24), (120, 40)], COLOR);
    let mut story = resumed();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.model.ui.run.window = Some(5_000_000);
    let (end, playhead) = (story.at, story.at);
    let state = PlaybackState { unattended: spans, ..playback_state(playhead, end) };
    story.send(Msg::Playback(state.clone()));
    shoot("replay-unattended", story, &[(80, 24), (120, 40)], COLOR);
    let mut story = resumed();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.send(Msg::Playback(state));
    shoot("replay-unattended-ascii", story, &[(120, 40)], ASCII);
}

#[test]
fn run_of_a_plain_job_on_cpus() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 2);
    story.run("hello", &cpu_slots(&[("local", 0), ("local", 1)]));
    story.model.ui.screen = Screen::Run;
    story.stage(RunStage::Start, &[]).wait_ms(120).stage(RunStage::Training, &[]);
    story.sample("local", 37.0, &[]);
    story.log(0, "hello from 0").log(1, "10 %\r50 %\r100 %").log(1, "日本語 and \u{1b}[31mred\u{1b}[0m");
    story.exit(0, Some(0), None, false);
    story.wait_ms(2_000);
    shoot("run-plain", story, &[(80, 24)], COLOR);
}

#[test]
fn run_that_failed() {
    shoot("run-failed", failed(), &SIZES, COLOR);
    shoot("run-failed-ascii", failed(), &[(80, 24)], ASCII);
}

#[test]
fn a_large_run_is_grouped_by_host_and_the_worst_stands_first() {
    shoot("run-many", many_ranks(64), &[(80, 24), (200, 50), WALL], COLOR);
    let mut story = many_ranks(64);
    story.error_log(300, "torch.OutOfMemoryError: CUDA out of memory");
    story.exit(300, Some(1), None, false);
    story.down("gpu-007", "connection reset");
    story.wait_ms(12_000);
    shoot("run-many-failed", story, &[(80, 24), (200, 50)], PLAIN);
}

#[test]
fn what_others_do_on_the_gpu_of_a_rank_that_never_ran_is_not_its_own() {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 2).run("late", &world::gpu_slots(&[("gpu-a", 0), ("gpu-a", 1)]));
    story.model.ui.screen = Screen::Run;
    story.send(Msg::Resize(120, 40));
    story.stage(RunStage::Start, &[]).rank(1, Event::RankStarted { pid: 7, t: HostTime(1) });
    story.sample("gpu-a", 3.0, &[busy(97, "zhao"), busy(55, "li")]).wait_ms(300);
    let shown = text(&story.model, COLOR);
    let row = |place: &str| shown.lines().find(|line| line.contains(place)).unwrap_or_default().to_owned();
    assert!(!row("gpu-a:0").contains("97 %") && row("gpu-a:0").contains('–'), "{shown}");
    assert!(row("gpu-a:1").contains("55 %"), "{shown}");
}

#[test]
fn ranks_of_a_silent_host_are_old_and_not_green() {
    let mut story = training();
    story.wait_ms(2_000).down("gpu-b", "connect to 10.0.0.12:22: connection refused");
    story.wait_ms(61_000);
    for step in 121..140 {
        story.step(0, step, 0.17, world::phases(0)).step(1, step, 0.17, world::phases(1)).wait_ms(60);
    }
    shoot("run-silent", story, &[(80, 24), (120, 40)], COLOR);
}

#[test]
fn a_replay_of_a_failure_stands_at_the_outcome() {
    let mut story = failed();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let end = story.at.plus_micros(-9_000_000);
    story.send(Msg::Playback(playback_state(end, end)));
    shoot("replay-failed", story, &[(80, 24), (120, 40), (200, 50)], COLOR);
}

#[test]
fn stop_is_asked_first() {
    let mut story = training();
    press(&mut story, "x");
    shoot("run-stop", story, &[(80, 24), (120, 40)], COLOR);
}

/// Rank 1 has not come to an `all_reduce`, and rank 3 tells nothing.
fn late() -> HostCollectives {
    let process = |rank, last| {
        let call = |number| Call {
            number,
            name: "all_reduce".to_owned(),
            state: if number < 63 { CallState::Done } else { CallState::Started },
            values: Some(1 << 20),
            dtype: "f32".to_owned(),
            ..Call::default()
        };
        let group = GroupCalls {
            name: "0".to_owned(),
            description: "default_pg".to_owned(),
            members: "0-3".to_owned(),
            last,
            calls: (60..=last).map(call).collect(),
        };
        ProcessCollectives { rank: Rank(rank), groups: vec![group], ..ProcessCollectives::default() }
    };
    let lacks = Some("its torch has not written its dump within 6 s".to_owned());
    let silent = ProcessCollectives { rank: Rank(3), lacks, ..ProcessCollectives::default() };
    HostCollectives { processes: vec![process(0, 63), process(1, 62), process(2, 63), silent], ras: None }
}

#[test]
fn the_collective_in_which_ranks_differ_is_told() {
    let mut story = failed();
    let (id, host) = {
        let (id, run) = story.model.shown_run().expect("a run");
        (id.clone(), run.spec.hosts().remove(0))
    };
    let event = Event::CollectivesTold { host, told: Box::new(late()) };
    story.tell(Origin::Run(id), event);
    shoot("run-differing", story, &[(80, 24), (120, 40)], COLOR);
}

#[test]
fn stacks_of_a_run() {
    let mut story = training();
    press(&mut story, "St");
    let (id, hosts) = {
        let (id, run) = story.model.shown_run().expect("a run");
        (id.clone(), run.spec.hosts())
    };
    let python = |rank, line: u32, phase| ProcessStacks {
        rank: Rank(rank),
        worker: None,
        pid: 4000 + rank,
        by: Taker::PySpy,
        text: format!(
            "Thread 0x2 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n\n\
             Current thread 0x1 (most recent call first):\n  File \"/opt/v/lib/python3.11/site-packages/torch/\
             _tensor.py\", line 648 in backward\n  File \"/home/ada/train.py\", line {line} in main\n  \
             File \"/home/ada/train.py\", line 80 in <module>\n"
        ),
        lacks: None,
        standing: Some(StalledPhase { phase, step: 300, for_us: 9_400_000, stopped: false, at: None }),
    };
    let of = vec![python(0, 57, Phase::Wait), python(2, 57, Phase::Wait), python(1, 41, Phase::Forward)];
    let collectives = Box::new(late());
    let host = hosts[0].clone();
    story.send(Msg::StacksTold {
        run: id.clone(),
        host,
        of,
        why: None,
        threads: None,
        collectives,
        last: true,
    });
    let why = (hosts.len() > 1).then(|| "the spool of the run can't be read: permission denied".to_owned());
    if let Some(host) = hosts.get(1) {
        let (host, of, collectives) = (host.clone(), Vec::new(), Box::default());
        story.send(Msg::StacksTold { run: id, host, of, why, threads: None, collectives, last: true });
    }
    shoot("run-stacks", story, &[(80, 24), (120, 40)], COLOR);
}

#[test]
fn runs_list() {
    let listed = || {
        let mut story = training();
        press(&mut story, "r");
        story.send(Msg::RunsListed(recordings()));
        let folder = "/home/li/.local/state/hvtui/runs".to_owned();
        let kept = KeptRecordings { folder, count: 3, bytes: 44_444_412, free: Some(18 << 30) };
        story.send(Msg::RecordingsKept(kept));
        story
    };
    let mut story = listed();
    press(&mut story, "jj");
    shoot("runs", story, &[(80, 24), (120, 40), (200, 50)], COLOR);
    let mut story = listed();
    press(&mut story, "g jsD");
    shoot("runs-delete", story, &[(80, 24), (120, 40)], COLOR);
    let mut story = Story::new(&["local"]);
    press(&mut story, "r");
    story.send(Msg::RunsListed(Vec::new()));
    shoot("runs-empty", story, &[(80, 24)], COLOR);
}

fn replay() -> Story {
    let mut story = training();
    let end = story.at;
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.send(Msg::Playback(playback_state(end, end)));
    story.model.ui.run.window = Some(500_000);
    story.go_back(end.plus_micros(-1_000_000));
    story
}

#[test]
fn replay_paused() {
    shoot("replay", replay(), &SIZES, COLOR);
    shoot("replay-no-colour", replay(), &[(120, 40)], PLAIN);
}

#[test]
fn help_of_each_screen() {
    for screen in [Screen::Cluster, Screen::Run, Screen::Replay] {
        let mut story = replay();
        story.model.ui.screen = screen;
        press(&mut story, "?");
        shoot(&format!("help-{screen:?}").to_lowercase(), story, &[(80, 24), (120, 40)], COLOR);
    }
}

/// So many hosts of eight GPUs: free, busy, held but idle; one GPU with a fault, the last host down.
fn many(hosts: usize) -> Story {
    let names: Vec<String> = (1..=hosts).map(|n| format!("gpu-{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut story = Story::new(&names);
    for (n, name) in names.iter().enumerate() {
        let busy_ones = [0, 4, 8][n % 3];
        let gpus: Vec<_> =
            (0..8).map(|g| if g < busy_ones { busy(30 + 10 * g, "li") } else { FREE }).collect();
        story.gpu_host(name, 8).sample(name, 1.0, &gpus);
    }
    story.down(names[hosts - 1], "connection reset by 10.0.0.99:22");
    story
}

#[test]
fn many_gpus_are_cells() {
    shoot("heat", many(64), &[(80, 24), (120, 40), (200, 50), WALL], COLOR);
    shoot("heat-ascii", many(64), &[(120, 40)], ASCII);
    let mut story = many(16);
    story.send(Msg::Resize(80, 24));
    press(&mut story, "jj");
    story.send(Msg::Key(Key::plain(KeyCode::Right)));
    press(&mut story, "  ");
    shoot("heat-picked", story, &[(80, 24)], PLAIN);
    shoot("cluster-two-tables", many(16), &[(200, 50)], COLOR);
    let mut story = many(2);
    press(&mut story, "H");
    shoot("heat-by-key", story, &[(80, 24)], COLOR);
}

#[test]
fn palette_and_themes() {
    let mut story = cluster();
    press(&mut story, ":th");
    shoot("palette", story, &SIZES, COLOR);
    let mut story = cluster();
    press(&mut story, ":theme mono");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot("theme-mono", story, &[(80, 24)], COLOR);
}

#[test]
fn notices_and_a_prompt() {
    let mut story = cluster();
    press(&mut story, "f");
    press(&mut story, "12");
    story.send(Msg::Notice(Level::Info, "run 7QK2 ended: all 4 ranks done".to_owned()));
    story.send(Msg::Notice(Level::Error, "launch on gpu-c: the host is not connected".to_owned()));
    shoot("notices", story, &[(80, 24), (120, 40)], COLOR);
}

/// What a look at these hosts has found: a red and a yellow cell, one host that is away, one that has not told yet.
fn checked(hosts: &[&str]) -> Matrix {
    let hosts: Vec<HostId> = hosts.iter().map(|host| HostId::from(*host)).collect();
    let good = |words: &str| Verdict::good(words);
    let row = |check, asks, verdict: &dyn Fn(usize) -> Option<Verdict>| Row {
        check,
        asks,
        verdicts: hosts
            .iter()
            .enumerate()
            .filter_map(|(at, host)| match at {
                1 => Some((host.clone(), Verdict::unknown("the host is not reached"))),
                _ => Some((host.clone(), verdict(at)?)),
            })
            .collect(),
    };
    let ssh = |at: usize, host: &HostId| match at {
        1 => Verdict::bad("connection refused", "no run can use the host", format!("ssh -v {host} true")),
        _ => good("up"),
    };
    let connection = Row {
        check: "ssh",
        asks: "is the host reached, and does it answer",
        verdicts: hosts.iter().enumerate().map(|(at, host)| (host.clone(), ssh(at, host))).collect(),
    };
    let path = |at| match at {
        2 => Some(Verdict::bad(
            "only a login shell finds horovodrun (/opt/conda/bin/horovodrun)",
            "horovodrun, mpirun and ssh start programs without a login shell: \"command not found\" on this host alone",
            "write 'export PATH=/opt/conda/bin:$PATH' at the top of ~/.bashrc there; for a run of hvtui: --env-from-login",
        )),
        _ => Some(good("horovodrun, mpirun, python3")),
    };
    let shm = |at| match at {
        0 => {
            let command = "sudo mount -o remount,size=16G /dev/shm";
            let remedy = format!("{command}; of a container: --ipc=host or --shm-size=16g");
            Some(Verdict::look("512 M of 512 M free", "NCCL ends", remedy).fixed_there(command))
        }
        _ => Some(good("63 G of 63 G free")),
    };
    let python = |at| (at != 3).then(|| good("/usr/bin/python3 3.11.9, torch 2.4.0"));
    let rows = vec![
        connection,
        row("shm", "is /dev/shm large enough for data loaders and NCCL", &shm),
        row("path", "do commands over ssh find the programs that a login shell finds", &path),
        row("python", "are Python, torch, TensorFlow, Horovod and their like the same on all hosts", &python),
    ];
    Matrix { hosts: hosts.clone(), rows }
}

#[test]
fn what_is_wrong_with_the_hosts() {
    let hosts = ["gpu-a", "gpu-b", "gpu-c", "gpu-d"];
    let mut story = Story::new(&hosts);
    let asked = press(&mut story, "4");
    assert!(
        matches!(asked[..], [Effect::CheckHosts(Look { number: 1, of: LookOf::All })]),
        "the first time it looks by itself: {asked:?}"
    );
    shoot_now("doctor-begins", &mut story, &[(80, 24)], COLOR);
    story.send(Msg::HostsChecked(1, Box::new(checked(&hosts)), false));
    press(&mut story, "nn");
    shoot_now("doctor", &mut story, &[(60, 15), (80, 24), (120, 40), (200, 50)], COLOR);
    assert_eq!(press(&mut story, "R"), [], "it goes on");
    assert!(
        matches!(&press(&mut story, "y")[..], [Effect::Copy(fix)] if fix.starts_with("write 'export PATH="))
    );
    // the whole of a cell, from trouble to trouble
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    shoot_now("doctor-whole", &mut story, &[(60, 15), (80, 24)], COLOR);
    story.send(Msg::Resize(60, 15));
    press(&mut story, "G");
    let end = text(&story.model, COLOR);
    assert!(end.contains("  lines ") && end.contains("asks   do commands over ssh"), "{end}");
    story.send(Msg::Resize(80, 24));
    press(&mut story, "nn");
    let shm = text(&story.model, COLOR);
    assert!(shm.contains("shm on gpu-a") && shm.contains("run    on gpu-a: sudo mount"), "{shm}");
    assert!(
        matches!(&press(&mut story, "y")[..], [Effect::Copy(fix)] if fix == "sudo mount -o remount,size=16G /dev/shm")
    );
    for key in [KeyCode::Right, KeyCode::Esc] {
        story.send(Msg::Key(Key::plain(key)));
    }
    assert_eq!((&story.model.ui.overlay, story.model.ui.screen), (&Overlay::None, Screen::Doctor));
    for _ in 0..9 {
        story.send(Msg::Key(Key::plain(KeyCode::Left)));
    }
    press(&mut story, "n");
    // an answer to an earlier question is none
    let many: Vec<String> = (0..64).map(|at| format!("node{at:03}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    story.send(Msg::HostsChecked(9, Box::new(checked(&many)), true));
    assert_eq!(story.model.ui.doctor.matrix.hosts.len(), hosts.len());
    story.send(Msg::HostsChecked(1, Box::new(checked(&many)), true));
    for _ in 0..2 {
        story.send(Msg::Key(Key::plain(KeyCode::Right)));
    }
    shoot_now("doctor-many", &mut story, &[(80, 24), (200, 50)], COLOR);
    story.send(Msg::Resize(80, 24));
    let shown = text(&story.model, ASCII);
    assert!(shown.contains(" right 23 more hosts"), "an arrow would be a key: {shown}");
    assert!(matches!(press(&mut story, "R")[..], [Effect::CheckHosts(Look { number: 2, .. })]));
}

#[test]
fn commands_that_help_have_the_hosts_file_that_was_given() {
    let mut story = cluster();
    let refused = |story: &Story| message_lines(&story.model, &HostId::from("gpu-d"), 500).concat();
    assert!(refused(&story).contains("then hvtui hosts trust gpu-d"), "{}", refused(&story));
    story.model.hosts_option = HostsOption::of(Some(Path::new("my hosts")));
    let told = refused(&story);
    assert!(told.contains("then hvtui --hosts 'my hosts' hosts trust gpu-d"), "{told}");
    story.send(Msg::Notice(Level::Warning, "see `hvtui doctor`".to_owned()));
    let notice = story.model.ui.toasts.back().map(|toast| toast.text.as_str());
    assert_eq!(notice, Some("see `hvtui --hosts 'my hosts' doctor`"));
    press(&mut story, "4");
    let host = HostId::from("gpu-a");
    let verdict = Verdict::look("no logins", "mpirun waits", "hvtui hosts mesh");
    let verdicts = [(host.clone(), verdict)].into_iter().collect();
    let rows = vec![Row { check: "logins", asks: "do hosts log in to each other", verdicts }];
    story.send(Msg::HostsChecked(1, Box::new(Matrix { hosts: vec![host], rows }), true));
    press(&mut story, "n");
    let copied = press(&mut story, "y");
    let command = "hvtui --hosts 'my hosts' hosts mesh";
    assert!(matches!(&copied[..], [Effect::Copy(text)] if text == command), "{copied:?}");
}

#[test]
fn many_hosts_of_the_doctor_have_what_tells_their_names_apart_above_their_columns() {
    let eight: Vec<String> = (1..=8).map(|at| format!("gpu-{at:02}")).collect();
    let eight: Vec<&str> = eight.iter().map(String::as_str).collect();
    let mut story = Story::new(&["gpu-01"]);
    story.send(Msg::Resize(80, 24));
    press(&mut story, "4");
    story.send(Msg::HostsChecked(1, Box::new(checked(&eight)), true));
    let shown = text(&story.model, COLOR);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[2], "  CHECK   gpu-01 02 03 04 05 06 07 08", "{shown}");
    // a check that has judged nothing on any host is counted as `hvtui doctor` counts it
    let mut matrix = checked(&eight);
    for verdict in matrix.rows[3].verdicts.values_mut() {
        *verdict = Verdict::unknown("no Python");
    }
    press(&mut story, "R");
    story.send(Msg::HostsChecked(2, Box::new(matrix.clone()), false));
    assert!(text(&story.model, COLOR).contains(" 8 hosts, 4 checks "), "not all have told");
    story.send(Msg::HostsChecked(2, Box::new(matrix), true));
    assert!(text(&story.model, COLOR).contains(" 8 hosts, 3 of 4 checks "));
    assert!(lines[3].starts_with("▌ ssh         ✔  ✖  ✔  ✔ "), "{shown}");
    // also of few ones, where the whole names are long
    let mut story = Story::new(&["gpu-01"]);
    story.send(Msg::Resize(120, 40));
    press(&mut story, "4");
    let long = ["cluster-a-node-001", "cluster-a-node-002", "cluster-a-node-003", "cluster-a-node-004"];
    story.send(Msg::HostsChecked(1, Box::new(checked(&long)), true));
    let shown = text(&story.model, COLOR);
    let head = shown.lines().nth(2).unwrap_or_default();
    assert!(head.starts_with("  CHECK ") && head.ends_with("001 002 003 004"), "{shown}");
}

/// That a line of the Doctor's matrix is of this check: a mark below each host's name, and words that end within the screen.
fn assert_line_of(check: &str, line: &str, head: &str, hosts: &[&str], width: usize) {
    let cells: Vec<char> = line.chars().collect();
    let name: String = cells.iter().skip(2).take_while(|cell| **cell != ' ').collect();
    assert_eq!(name, check, "{line}");
    for host in hosts {
        let at = head.find(host).expect("a column a host");
        assert!("✔⚠✖–".contains(cells[at]) && cells[at + 1] == ' ', "{check} on {host}: {line}");
    }
    assert!(line.ends_with('…') && cells.len() < width, "{line}");
}

#[test]
fn each_check_of_the_doctor_has_a_line() {
    let hosts = ["gpu-a", "gpu-b", "gpu-c", "gpu-d"];
    let words = "what was seen there ".repeat(30);
    let verdict = |at: usize| match at % 4 {
        0 => Verdict::good(words.as_str()),
        1 => Verdict::look(words.as_str(), "why", "what helps"),
        2 => Verdict::bad(words.as_str(), "why", "what helps"),
        _ => Verdict::unknown(words.as_str()),
    };
    let checks = [("ssh", "is the host reached")].into_iter();
    let checks = checks.chain(CHECKS.iter().map(|entry| (entry.name, entry.asks)));
    let rows = checks.enumerate().map(|(at, (check, asks))| Row {
        check,
        asks,
        verdicts: hosts.iter().zip(at..).map(|(host, at)| (HostId::from(*host), verdict(at))).collect(),
    });
    let matrix =
        Matrix { hosts: hosts.iter().map(|host| HostId::from(*host)).collect(), rows: rows.collect() };
    let checks: Vec<&str> = matrix.rows.iter().map(|row| row.check).collect();
    let mut story = Story::new(&hosts);
    press(&mut story, "4");
    story.send(Msg::HostsChecked(1, Box::new(matrix), true));
    // all at once
    story.send(Msg::Resize(200, 50));
    let shown = text(&story.model, COLOR);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(!lines[1].contains("more"), "{shown}");
    for (line, check) in lines[3..].iter().zip(&checks) {
        assert_line_of(check, line, lines[2], &hosts, 200);
    }
    // and one after the other
    story.send(Msg::Resize(80, 24));
    press(&mut story, "g");
    let shown = text(&story.model, COLOR);
    let lines: Vec<&str> = shown.lines().collect();
    let below = checks.len() - lines[3..].iter().take_while(|line| !line.starts_with('─')).count();
    assert!(lines[1].contains(&format!("{} checks   ↓ {below} more ", checks.len())), "{shown}");
    for check in &checks {
        let shown = text(&story.model, COLOR);
        let lines: Vec<&str> = shown.lines().collect();
        let chosen = lines.iter().find(|line| line.starts_with('▌')).expect("a chosen check");
        assert_line_of(check, chosen, lines[2], &hosts, 80);
        press(&mut story, "j");
    }
}

#[test]
fn the_demo_says_so_on_each_screen_and_beside_each_prompt() {
    for keys in ["1", "1/", "1f", "1u", "2", "2/", "3", "3/", "4", "E", "L"] {
        let mut story = cluster();
        story.model.demo = true;
        story.send(Msg::Resize(80, 24));
        press(&mut story, keys);
        let shown = text(&story.model, COLOR);
        assert!(shown.contains(" DEMO "), "{keys}:\n{shown}");
    }
}

#[test]
fn wide_names_beside_a_frame_leave_it_whole() {
    let mut story = Story::new(&["训练节点一号机房乙", "gpu-b"]);
    story.send(Msg::Resize(80, 24));
    for keys in ["?", ":"] {
        press(&mut story, keys);
        for size in (60..80).map(|width| (width, 24)) {
            story.send(Msg::Resize(size.0, size.1));
            let shown = text(&story.model, COLOR);
            let framed = shown.lines().skip(2).take(15).filter(|line| line.matches('│').count() == 2).count();
            assert!(framed >= 10, "{size:?}:\n{shown}");
        }
        story.send(Msg::Key(Key::plain(KeyCode::Esc)));
    }
}

#[test]
fn a_terminal_that_is_too_small() {
    shoot("too-small", cluster(), &[(40, 10)], COLOR);
    shoot("least", cluster(), &[(60, 15)], COLOR);
    shoot("least-run", training(), &[(60, 15)], COLOR);
}

#[test]
fn the_same_world_and_size_give_the_same_text() {
    let stories: [fn() -> Story; 3] = [cluster, training, failed];
    for story in stories {
        let story = story();
        assert_eq!(text(&story.model, COLOR), text(&story.model.clone(), COLOR));
    }
    assert_eq!(text(&training().model, PLAIN), text(&training().model, PLAIN));
}

#[test]
fn ascii_is_ascii_on_every_screen_and_size() {
    for (columns, rows) in [(20, 5), (60, 15), (61, 16), (80, 24), (137, 41), (300, 90)] {
        let stories: [fn() -> Story; 4] = [cluster, training, failed, replay];
        for story in stories {
            let story = story();
            for screen in
                [Screen::Cluster, Screen::Detail, Screen::Launch, Screen::Run, Screen::Runs, Screen::Replay]
            {
                let mut model = story.model.clone();
                model.ui.screen = screen;
                update(&mut model, Msg::Resize(columns, rows));
                assert!(text(&model, ASCII).is_ascii(), "{screen:?} {columns}x{rows}");
            }
        }
    }
}

/// What ssh asks in a story: a host key first, a password behind it.
fn asked() -> Story {
    let mut story = cluster();
    let key = Subject::HostKey {
        algorithm: "ssh-ed25519".to_owned(),
        fingerprint: "SHA256:JUdJXEQPA8sUjPZ3qfcSbjwZqOw+S5/g+CpECe/0Fqo".to_owned(),
        also: vec!["gpu-old,10.0.0.9".to_owned()],
        other: Vec::new(),
    };
    for (number, subject, note) in
        [(1, key, None), (2, Subject::Password, Some("that was not accepted; try 2 of 3".to_owned()))]
    {
        let (host, to) = (world::host("gpu-b"), "li@10.0.0.12:22".to_owned());
        story.send(Msg::Asked(number, Question { host, to, subject, note }));
    }
    story
}

#[test]
fn questions_lie_over_the_screen_one_at_a_time() {
    let mut story = asked();
    press(&mut story, "ye");
    shoot("question-host-key", story, &SIZES[..2], COLOR);
    let mut story = asked();
    story.send(Msg::Key(Key::plain(KeyCode::Esc)));
    press(&mut story, "sesame");
    shoot("question-password", story, &[(80, 24)], COLOR);
    let mut story = asked();
    press(&mut story, "y");
    shoot("question-ascii", story, &[(60, 15)], ASCII);
}
