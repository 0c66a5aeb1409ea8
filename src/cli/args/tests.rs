use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    crate::cli::parse(line.split(' ').map(OsString::from))
}

fn run(line: &str) -> RunArgs {
    match parse(line).unwrap().command {
        Some(Command::Run(args)) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn np_is_spelled_as_horovodrun_spells_it() {
    for line in ["-np 4", "-np4", "-np=4", "--np 4", "--np=4", "--num-proc 4"] {
        let args = run(&format!("hvtui run {line} -H a:2,b:2 -- mpirun -np 8 x"));
        assert_eq!((args.np, args.host_list.as_deref()), (Some(4), Some("a:2,b:2")), "{line}");
        assert_eq!(args.command, ["mpirun", "-np", "8", "x"], "the job's own -np stays");
    }
}

#[test]
fn dashes_before_the_command_may_be_left_out() {
    let args = run("hvtui run -np 2 -H a:1 b:1 -- python train.py --lr 1");
    assert_eq!(args.host_list.as_deref(), Some("a:1"));
    assert_eq!(args.command, ["b:1", "--", "python", "train.py", "--lr", "1"], "kept to be explained");
    for line in ["hvtui run -n 2 python train.py --lr 1 -H", "hvtui run -np 2 -- python train.py --lr 1 -H"] {
        let args = run(line);
        assert_eq!((args.np, args.host_list), (Some(2), None), "{line}");
        assert_eq!(args.command, ["python", "train.py", "--lr", "1", "-H"], "{line}");
    }
    assert!(parse("hvtui run --npp 2 python train.py").is_err(), "an option that is none begins no command");
}

#[test]
fn a_negative_number_is_a_value_that_is_not_taken() {
    for (line, option, takes) in [
        ("hvtui run -np -2 -- x", "--np <N>", "write a whole number, such as 2"),
        ("hvtui run -n -2 x", "--np <N>", "write a whole number"),
        ("hvtui run --gpus-per-rank -1 x", "--gpus-per-rank <N>", "write a whole number"),
        ("hvtui run --start-timeout -3 x", "--start-timeout <S>", "a time such as 90s or 5m"),
        ("hvtui pick -1", "<N>", "-1 is not in 1..=100000"),
        ("hvtui logs --rank -1", "--rank <R,..>", "write ranks as 0,3 or 0-2,5"),
        ("hvtui export --to csv --from -5", "--from <S>", "give a number of seconds from 0 on"),
        ("hvtui watch -n -3", "<S", "seconds"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains("invalid value '-") && error.contains(option), "{line}: {error}");
        assert!(error.contains(takes) && !error.contains("-- -"), "{line}: {error}");
    }
    assert_eq!(run("hvtui run -np 2 -- x -5").command, ["x", "-5"]);
    assert_eq!(run("hvtui run -np 2 x --lr -5").command, ["x", "--lr", "-5"]);
}

#[test]
fn a_start_timeout_is_seconds_or_a_time() {
    let told = |text: &str| run(&format!("hvtui run --start-timeout {text} -- x")).start_timeout;
    assert_eq!(["3", "3s", "2m", "1h"].map(told), [3, 3, 120, 3600].map(Some));
    for bad in ["0", "0s", "1.5", "20ms", "soon", "s", "200y"] {
        let error = parse(&format!("hvtui run --start-timeout {bad} -- x")).unwrap_err().to_string();
        assert!(error.contains(&format!("'{bad}'")) && error.contains("90s or 5m"), "{error}");
    }
}

#[test]
fn help_is_a_word_too() {
    let help = |line: &str| parse(line).unwrap_err().to_string();
    assert_eq!(help("hvtui help run"), help("hvtui run --help"));
    assert_eq!(help("hvtui help"), help("hvtui --help"));
    assert_eq!(help("hvtui help runs mark"), help("hvtui runs mark --help"));
    assert!(help("hvtui help nothing").contains("unrecognized subcommand 'nothing'"));
    assert_eq!(run("hvtui run -- help").command, ["help"]);
}

#[test]
fn one_run_has_commands_of_its_own() {
    for (line, run) in [
        ("hvtui runs last", "last"),
        ("hvtui runs show last", "last"),
        ("hvtui runs 7QK2", "7QK2"),
        ("hvtui runs --local show", "RUN"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        for command in ["report", "logs", "replay"] {
            assert!(error.contains(&format!("hvtui {command} {run}")), "{line}: {error}");
        }
        assert!(error.contains("Usage: hvtui runs"), "{error}");
    }
    let list = parse("hvtui runs list").unwrap_err().to_string();
    assert!(list.contains("`hvtui runs` alone lists them"), "{list}");
    let near = parse("hvtui runs prun").unwrap_err().to_string();
    assert!(near.contains("'prune'") && !near.contains("hvtui report"), "{near}");
}

#[test]
fn places_exclude_each_other() {
    assert!(parse("hvtui run -H a:1 --gpus a:0 -- x").is_err());
    assert!(parse("hvtui run -H a:1 --hostfile f -- x").is_err());
    assert!(parse("hvtui run --gpus a:0 --hostfile f -- x").is_err());
}

#[test]
fn ranks_are_numbers_and_ranges_of_them() {
    let ranks = |text: &str| match parse(&format!("hvtui export last --to csv --ranks {text}"))?.command {
        Some(Command::Export(args)) => {
            Ok(args.selection.ranks.iter().cloned().flatten().collect::<Vec<u32>>())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(ranks("0,2,5").unwrap(), [0, 2, 5]);
    assert_eq!(ranks("0-2,5").unwrap(), [0, 1, 2, 5]);
    for (bad, why) in [
        ("a", "write ranks as 0,3 or 0-2,5"),
        ("0-", "write ranks as 0,3 or 0-2,5"),
        ("0-4294967295", "write ranks as 0,3 or 0-2,5"),
        ("2-0", "rank 2 comes after rank 0: the first rank goes first"),
    ] {
        let error: clap::Error = ranks(bad).unwrap_err();
        assert!(error.to_string().contains(why), "{bad}: {error}");
    }
}

#[test]
fn the_size_of_the_screens_stands_behind_them_either_way() {
    let screens = |line: &str| match parse(line).map(|cli| cli.command) {
        Ok(Some(Command::Export(args))) => Ok((args.run, args.screens)),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    };
    let sized = |run: &str| Ok((run.to_owned(), Some((100, 30))));
    assert_eq!(screens("hvtui export --to asciicast --screens 100x30"), sized("last"));
    assert_eq!(screens("hvtui export abc --screens 100x30 --to asciicast"), sized("abc"));
    assert_eq!(screens("hvtui export --to asciicast --screens=100x30 abc"), sized("abc"));
    let plain = screens("hvtui export --to asciicast --screens abc");
    assert_eq!(plain, Ok(("abc".to_owned(), Some((120, 36)))));
    for wrong in ["80x24x", "80x", "8000x24", "120x3"] {
        let error = screens(&format!("hvtui export --to asciicast --screens {wrong}")).unwrap_err();
        assert!(error.contains("write columns and rows as 120x36") && error.contains(wrong), "{error}");
    }
    let named = screens("hvtui export --to asciicast --screens box4x4");
    assert_eq!(named, Ok(("box4x4".to_owned(), Some((120, 36)))), "a run's name");
    let job = run("hvtui run -np 2 python export --screens 100x30").command;
    assert_eq!(job, ["python", "export", "--screens", "100x30"], "the job's own words stay");
}

#[test]
fn roles_are_there_for_hvtui_itself() {
    let cli = parse("hvtui agent --stdio --nonce 00ff").unwrap();
    assert!(matches!(cli.command, Some(Command::Agent(AgentArgs { nonce: Some(_), .. }))));
    assert!(parse("hvtui supervise --stage2 --dir /run").is_ok());
    assert!(parse("hvtui rank-wrap --rank 3 --dir /run").is_ok());
}

#[test]
fn the_hosts_file_can_be_named_anywhere() {
    for line in ["hvtui --hosts f watch", "hvtui watch --hosts f", "hvtui --hosts f"] {
        assert_eq!(parse(line).unwrap().hosts, Some(PathBuf::from("f")), "{line}");
    }
}
