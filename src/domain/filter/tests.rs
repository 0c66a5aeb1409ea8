use proptest::prelude::*;

use super::*;
use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading, RunOfProcess};
use crate::domain::ids::{GpuUuid, RunId};
use crate::domain::lease::Lease;
use crate::domain::time::Stamp;

fn process(user: &str, command: &str) -> GpuProcess {
    GpuProcess {
        pid: 7,
        user: Reading::Value(user.to_owned()),
        command: Reading::Value(command.to_owned()),
        memory: Reading::Value(10 << 30),
        run: None,
        container: None,
        ..GpuProcess::unknown(7)
    }
}

fn info() -> GpuInfo {
    GpuInfo { uuid: GpuUuid::from("GPU-3"), name: "NVIDIA H200".to_owned(), ..GpuInfo::unknown(3) }
}

fn busy() -> GpuSample {
    GpuSample {
        util: Reading::Value(97),
        memory_used: Reading::Value(120 << 30),
        memory_total: Reading::Value(140 << 30),
        temperature: Reading::Value(71),
        power_mw: Reading::Value(630_000),
        power_limit_mw: Reading::Value(700_000),
        processes: Reading::Value(vec![process("li", "python train.py --lr 0.1"), process("wang", "nvtop")]),
        throttle: Reading::Value(vec!["sw power cap".to_owned()]),
        ..GpuSample::unknown(3)
    }
}

/// Whether each filter holds for the GPU.
fn holds(gpu: GpuSubject<'_>, filter: &str) -> bool {
    let labels = ["ib".to_owned(), "rack 4".to_owned()];
    let subject = Subject { host: "gpu-b", labels: &labels, gpu: Some(gpu) };
    Filter::parse(filter).unwrap_or_else(|error| panic!("{}", error.pointed(filter))).matches(&subject)
}

fn gpu<'a>(info: &'a GpuInfo, sample: &'a GpuSample) -> GpuSubject<'a> {
    GpuSubject {
        info,
        sample: Some(sample),
        lease: None,
        run: None,
        free: false,
        held: Some(true),
        idle: Some(false),
        age_us: Some(7_200_000_000),
        events: None,
    }
}

#[test]
fn what_is_known_is_compared() {
    let (info, sample) = (info(), busy());
    let gpu = gpu(&info, &sample);
    for yes in [
        "",
        "  ",
        "util>90",
        "util>90%",
        "util==97",
        "util>=97 & util<=97 & util!=5",
        "mem>100G",
        "mem>100GiB",
        "mem == 120G",
        "mem>80%",
        "mem_free<30G & mem_free>10%",
        "temp>70C & temp<72°",
        "power>600W & power<0.7kW",
        "power==90%",
        "gpu==3 & gpu<4",
        "age>1h & age<=2h & age>90m & age>60",
        "host==gpu-b & host==GPU-B & host!=gpu",
        "host~b & host!~a",
        "label==ib label==\"rack 4\" label!=eth",
        "model~h200 & model==h200 & model==\"nvidia h200\"",
        "user==li & user==wang & user!=root & user~an",
        "user!=free & !free & held",
        "cmd~train.py",
        "command~\"--lr 0.1\"",
        "cmd~/train.*\\.py/ & cmd!~/^torchrun/",
        "cmd~/TRAIN/ host~/^gpu-[ab]$/",
        "health~power & health!=ok & !ok",
        "li",
        "H200 train",
        "\"python train\"",
        "/gpu-[a-c]/",
        "host~x | util>90",
        "not (host~x or util<90) and li",
        "!host~x",
        "!(free | idle)",
        "host~x | host~b & li",
    ] {
        assert!(holds(gpu, yes), "{yes}");
    }
    for no in [
        "util<90",
        "util==96",
        "mem<50%",
        "host==gpu",
        "user==free",
        "free",
        "idle",
        "ok",
        "label==rack",
        "run~x",
        "(host~b | li) & host~x",
        "!held",
        "wing",
    ] {
        assert!(!holds(gpu, no), "{no}");
    }
}

#[test]
fn states_and_runs_have_their_words() {
    let (info, sample) = (info(), GpuSample { processes: Reading::Value(Vec::new()), ..busy() });
    let free =
        GpuSubject { free: true, held: Some(false), idle: Some(true), age_us: None, ..gpu(&info, &sample) };
    for yes in ["free", "user==free", "!held", "user!=li", "!idle", "FREE"] {
        assert!(holds(free, yes), "{yes}");
    }
    assert!(!holds(free, "user!=free") && !holds(free, "\"free\""), "in quotes it is a text");
    let held = GpuSubject { idle: Some(true), ..gpu(&info, &sample) };
    assert!(holds(held, "idle & held & !free"));
    let run = RunId::new(1, 1);
    let lease = Lease {
        user: Some("zhao".to_owned()),
        run: Some(run.clone()),
        name: Some("mnist".to_owned()),
        ..Lease::unknown("GPU-3")
    };
    let leased = GpuSubject { lease: Some(&lease), ..gpu(&info, &sample) };
    for yes in [format!("run=={}", run.short()), "run==mnist & user==zhao".to_owned(), format!("run~{run}")] {
        assert!(holds(leased, &yes), "{yes}");
    }
    let own = GpuSubject { run: Some((&run, "digits")), ..gpu(&info, &sample) };
    assert!(holds(own, "run==digits") && holds(own, "run!=mnist"));
    let of = Some(RunOfProcess { id: run.clone(), rank: None });
    let sample = GpuSample {
        processes: Reading::Value(vec![GpuProcess { run: of, ..process("li", "train") }]),
        ..busy()
    };
    assert!(holds(gpu(&info, &sample), &format!("run=={}", run.short())));
}

#[test]
fn what_is_unknown_passes_no_comparison_and_no_opposite_of_one() {
    let info = info();
    let failed = GpuSample::failed(3, "GPU is lost");
    let unknown = GpuSubject { held: None, idle: None, age_us: None, ..gpu(&info, &failed) };
    let fields = ["util", "mem", "mem_free", "temp", "power", "age"];
    for field in fields {
        for filter in ["<9", ">=0", "==0", "!=5"].map(|rest| format!("{field}{rest}").replace("<9", "<9%")) {
            let filter = if matches!(field, "temp" | "age") { filter.replace('%', "") } else { filter };
            let filter = filter.replace("!=5", "!=0");
            assert!(!holds(unknown, &filter), "{filter}");
            assert!(!holds(unknown, &format!("!{filter}")), "!{filter}");
        }
    }
    for filter in ["user==li", "user!=li", "cmd!~x", "held", "!held", "idle", "!idle", "user~x | util<5"] {
        assert!(!holds(unknown, filter), "{filter}");
    }
    // What does not depend on it is decided all the same.
    for filter in ["!free", "host~b | util<5", "!(host~x & util<5)", "gpu==3"] {
        assert!(holds(unknown, filter), "{filter}");
    }
    let none = Subject { host: "cpu-a", labels: &[], gpu: None };
    let passes = |text: &str| Filter::parse(text).unwrap().matches(&none);
    assert!(passes("host~cpu") && passes("cpu") && passes("") && !passes("!free") && !passes("gpu==0"));
}

#[test]
fn a_gpu_of_which_nothing_can_be_read_is_not_ok() {
    let info = info();
    for (why, word) in [("GPU is lost", "lost"), ("no answer from NVML for 7 s", "no answer")] {
        let failed = GpuSample::failed(3, why);
        let gpu = gpu(&info, &failed);
        for filter in ["!ok".to_owned(), "health!=ok".to_owned(), format!("health==\"{word}\"")] {
            assert!(holds(gpu, &filter), "{filter}");
        }
        assert!(!holds(gpu, "ok") && !holds(gpu, "health~hot"));
    }
}

#[test]
fn what_excludes_a_gpu_is_told_and_whether_it_would_when_nothing_is_on_it() {
    let (info, sample) = (info(), busy());
    let labels = ["ib".to_owned()];
    let subject = Subject { host: "gpu-b", labels: &labels, gpu: Some(gpu(&info, &sample)) };
    let told = |filter: &str| {
        let exclusion = Filter::parse(filter).unwrap().exclusion(&subject)?;
        let when = if exclusion.for_good { "for good" } else { "now" };
        Some(format!("{} {when}", exclusion.clauses.join(", ")))
    };
    for (filter, expected) in [
        ("util>90", None),
        ("util<5", Some("util<5 now")),
        ("util<5 & model~h200 & !held & free", Some("util<5, !held, free now")),
        ("util<5 & model~a100", Some("model~a100 for good")),
        ("mem<1G & mem_free>130G & mem_free>90%", Some("mem<1G, mem_free>130G, mem_free>90% now")),
        ("mem_free>200G & util<5", Some("mem_free>200G for good")),
        ("user==wu | cmd~x", Some("user==wu | cmd~x for good")),
        ("user!=li & run!=x", Some("user!=li now")),
        ("temp<40 & power<100W & ok", Some("temp<40, power<100W, ok now")),
        ("temp<40 & age<5m", Some("age<5m (never known of a free GPU) for good")),
        ("!(age<5m) & util<5", Some("!age<5m (never known of a free GPU) for good")),
        ("age<5m | util<5", Some("age<5m | util<5 now")),
        ("host~x | util<5", Some("host~x | util<5 now")),
        ("host~x | gpu<2 | label==eth", Some("host~x | gpu<2 | label==eth for good")),
        ("idle", Some("idle for good")),
        ("user==free", Some("user==free now")),
        ("!(util>5 | user~l)", Some("!(util>5 | user~l) now")),
    ] {
        assert_eq!(told(filter).as_deref(), expected, "{filter}");
    }
}

#[test]
fn what_a_gpu_never_tells_excludes_it_for_good_and_so_does_its_opposite() {
    let info = GpuInfo { parent: Some(0), ..info() };
    let slice = GpuSample { memory_used: Reading::Value(0), ..GpuSample::unknown(3) };
    let failed = GpuSample::failed(3, "not read yet");
    let is_for_good = |sample: &GpuSample, filter: &str| {
        let gpu = GpuSubject { held: None, idle: None, age_us: None, ..gpu(&info, sample) };
        let subject = Subject { host: "gpu-b", labels: &[], gpu: Some(gpu) };
        let exclusion = Filter::parse(filter).unwrap().exclusion(&subject);
        exclusion.map(|exclusion| (exclusion.for_good, exclusion.clauses.join(", ")))
    };
    for filter in ["util<5", "util==0", "!(util>5)", "temp<40", "power<100W", "power<9%", "mem_free<5%"] {
        let (for_good, clauses) = is_for_good(&slice, filter).unwrap();
        assert!(for_good && clauses.ends_with(" (never known of a MIG slice)"), "{filter}: {clauses}");
        assert_eq!(
            is_for_good(&failed, filter),
            Some((false, clauses.replace(" (never known of a MIG slice)", "")))
        );
    }
    let clauses = "util<5 | host~x (never known of a MIG slice)".to_owned();
    assert_eq!(is_for_good(&slice, "util<5 | host~x"), Some((true, clauses)));
    assert_eq!(is_for_good(&slice, "!(util>5 & host~x)"), None, "decided by the host alone");
    assert_eq!(is_for_good(&slice, "util<5 | mem<1G"), None);
    assert_eq!(is_for_good(&slice, "util<5 | user!=li"), Some((false, "util<5 | user!=li".to_owned())));
}

#[test]
fn the_age_is_that_of_the_oldest_process_else_of_the_lease() {
    let age = |processes: Vec<GpuProcess>, lease: Option<&Lease>, now: i64| {
        let sample = GpuSample { processes: Reading::Value(processes), ..busy() };
        subject::age_us(Some((Stamp(1_000_000), &sample)), lease.map(|_| Stamp(500_000)), Stamp(now))
    };
    let aged = |seconds| GpuProcess { age_s: Reading::Value(seconds), ..process("li", "train") };
    let lease = Lease::unknown("GPU-3");
    assert_eq!(age(vec![aged(3), aged(7), process("x", "y")], Some(&lease), 2_500_000), Some(8_500_000));
    assert_eq!(
        age(vec![process("x", "y")], Some(&lease), 2_500_000),
        Some(2_000_000),
        "its host does not tell"
    );
    assert_eq!(age(Vec::new(), None, 2_500_000), None);
}

#[test]
fn an_error_says_where_and_what_to_write() {
    let told = |text: &str| Filter::parse(text).unwrap_err().pointed(text);
    let all = [
        "utl<5 & free",
        "free & memory_free>4G",
        "colour==red",
        "util<",
        "util<x",
        "free & mem>40",
        "mem>40X",
        "gpu==1G",
        "age>2w",
        "host<5",
        "util~5",
        "util",
        "free &",
        "& free",
        "free | | held",
        "(free",
        "free)",
        "()",
        "!",
        "==5",
        "\"util\"<5",
        "cmd~/train",
        "cmd~/data/train.py",
        "cmd~/a(b/",
        "cmd~/a{1,9}{1,99}{1,999}/",
        "\"gpu",
        "größe<5",
        "host~grün & utl<5",
    ];
    let told: Vec<String> = all.into_iter().map(told).collect();
    insta::assert_snapshot!("filter_errors", told.join("\n"));
}

#[test]
fn depth_and_length_have_bounds() {
    for deep in ["(", "!", "!("].map(|mark| mark.repeat(2000)) {
        let error = Filter::parse(&format!("{deep}free")).unwrap_err();
        assert!(error.reason.contains("within each other"), "{error}");
    }
    assert!(Filter::parse(&"a ".repeat(LENGTH_MAX)).unwrap_err().reason.contains("4096"));
    assert!(Filter::parse(&format!("{}free{}", "(".repeat(60), ")".repeat(60))).is_ok());
}

#[test]
fn what_is_written_has_one_form() {
    let form = |text: &str| Filter::parse(text).unwrap().to_string();
    assert_eq!(form("a  and not b or (c & d)"), "a & !b | c & d");
    assert_eq!(form("free h200"), "free & h200");
    assert_eq!(form("(a | b) & (c & d)"), "(a | b) & (c & d)");
    assert_eq!(form("UTIL = 5 && mem_free >= 40GiB || !(x y)"), "util==5 & mem_free>=40G | !(x & y)");
    assert_eq!(
        form(r#"cmd~"a \"b\"" cmd~/a\/b/ "or" "free""#),
        r#"cmd~"a \"b\"" & cmd~/a\/b/ & "or" & "free""#
    );
    assert_eq!(form("user==free cmd==/usr/bin/python"), "user==free & cmd==\"/usr/bin/python\"");
    assert_eq!(form("age>90min"), "age>90m");
}

#[test]
fn tab_offers_what_can_stand_there() {
    let known = CompletionValues {
        hosts: vec!["gpu-a".to_owned(), "gpu-b".to_owned()],
        models: ["A100 80GB".to_owned(), "H200".to_owned()].into(),
        users: ["li".to_owned(), "wang".to_owned()].into(),
        ..CompletionValues::default()
    };
    let offers = |text: &str| {
        let completion = complete(text, text.len(), &known);
        completion.map(|completion| {
            let texts =
                completion.options.iter().map(|with| format!("{}{with}", &text[..completion.at.start]));
            texts.collect::<Vec<_>>().join(", ")
        })
    };
    assert_eq!(offers("ut").unwrap(), "util");
    assert_eq!(offers("free & mem").unwrap(), "free & mem, free & mem_free");
    assert_eq!(offers("!h").unwrap(), "!host, !health, !held");
    assert_eq!(offers("host~").unwrap(), "host~gpu-a, host~gpu-b");
    assert_eq!(offers("host != GPU-B").unwrap(), "host != gpu-b");
    assert_eq!(offers("(user==").unwrap(), "(user==free, (user==li, (user==wang");
    assert_eq!(offers("user!=w").unwrap(), "user!=wang");
    assert_eq!(offers("model==").unwrap(), "model==\"A100 80GB\", model==H200");
    assert_eq!(offers("model==\"a100 8").unwrap(), "model==\"A100 80GB\"");
    assert_eq!(offers("health~o").unwrap(), "health~ok");
    assert_eq!(offers("util<"), None);
    assert_eq!(offers("nothing"), None);
    assert_eq!(complete("ütil", 1, &known), None, "within a character");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9_.-]{0,6}", "(and|or|not|free|util)", "[a-zé\"\\\\/ &|!()=<>~]{0,6}"]
}

fn pattern() -> impl Strategy<Value = String> {
    // As the language writes it, so that the regex is compiled by the parser.
    "[a-c/. ]{1,6}".prop_map(|source| lex::regex_text(&source))
}

fn test() -> impl Strategy<Value = Test> {
    let texts = || {
        prop::sample::select(
            Field::ALL.iter().copied().filter(|f| f.kind() == Kind::Text).collect::<Vec<_>>(),
        )
    };
    let numbers = prop::sample::select(
        Field::ALL.iter().copied().filter(|f| f.kind() != Kind::Text).collect::<Vec<_>>(),
    );
    let ops = prop::sample::select(vec![
        Op::Equal,
        Op::NotEqual,
        Op::Less,
        Op::LessEqual,
        Op::Greater,
        Op::GreaterEqual,
    ]);
    let number =
        (numbers, ops, 0.0..1e15f64, any::<prop::sample::Index>()).prop_map(|(field, op, number, unit)| {
            let Kind::Number(units) = field.kind() else { unreachable!() };
            let unit = units[unit.index(units.len())].1;
            let bare = unit == Unit::Plain && matches!(field, Field::Mem | Field::MemFree);
            Test::Number { field, op, amount: Amount { number: if bare { 0.0 } else { number }, unit } }
        });
    let regex = (texts(), any::<bool>(), pattern()).prop_map(|(field, not, pattern)| {
        let filter =
            Filter::parse(&format!("{}{}{pattern}", field.name(), if not { "!~" } else { "~" })).unwrap();
        match filter.expr {
            Some(Expr::Test(test)) => test,
            other => panic!("{other:?}"),
        }
    });
    prop_oneof![
        prop::sample::select(Word::ALL.to_vec()).prop_map(Test::Word),
        number,
        (texts(), any::<bool>(), text()).prop_map(|(field, not, text)| Test::Equal { field, not, text }),
        (texts(), any::<bool>(), text()).prop_map(|(field, not, text)| Test::Like {
            field,
            not,
            pattern: Pattern::Text(text)
        }),
        regex,
        text().prop_map(|text| Test::Any(Pattern::Text(text))),
    ]
}

fn expr() -> impl Strategy<Value = Expr> {
    test().prop_map(Expr::Test).prop_recursive(6, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::Or),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expr::And),
            inner.prop_map(|of| Expr::Not(Box::new(of))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same(expr in expr()) {
        let filter = Filter { expr: Some(expr) };
        let text = filter.to_string();
        prop_assume!(text.len() <= LENGTH_MAX);
        let again = Filter::parse(&text).map_err(|error| TestCaseError::fail(error.pointed(&text)))?;
        prop_assert_eq!(again, filter, "{}", text);
    }

    #[test]
    fn whatever_is_typed_is_read_or_pointed_at(text in "[ a-c0-9<>=~!&|()\"/\\\\%Gé.utilmem_hosgpu]{0,40}") {
        match Filter::parse(&text) {
            Ok(filter) => prop_assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter),
            Err(error) => {
                prop_assert!(text.get(error.at.clone()).is_some(), "{:?} in {}", error.at, text);
                prop_assert!(error.pointed(&text).lines().count() == 2);
            }
        }
        for cursor in 0..=text.len() {
            if let Some(completion) = complete(&text, cursor, &CompletionValues::default()) {
                prop_assert!(text.get(completion.at).is_some() && !completion.options.is_empty());
            }
        }
    }
}
