//! TLS, mutual TLS and API keys by flags and variables, between processes.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use foretoken_testkit::pki::{Identity, Pki};
use foretoken_tests::process::{Service, foretoken, test_model};

const KEY: &str = "secret-0123456789";

/// Certificates and keys in files, and the flags that name them.
struct Files {
    pki: Pki,
    own: Identity,
    keys: PathBuf,
    key: PathBuf,
}

fn text(path: &std::path::Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

impl Files {
    fn new() -> Self {
        let pki = Pki::new("a CA");
        let own = pki.loopback("everybody");
        let (keys, key) = (pki.path("api-keys"), pki.path("api-key"));
        std::fs::write(&keys, format!("# who may call\nalice {KEY}\n")).unwrap();
        std::fs::write(&key, format!("{KEY}\n")).unwrap();
        Self { pki, own, keys, key }
    }

    /// A listener that asks for certificates.
    fn server(&self) -> Vec<String> {
        [
            ("--tls-cert", &self.own.certificate),
            ("--tls-key", &self.own.key),
            ("--tls-client-ca", &self.pki.ca()),
        ]
        .into_iter()
        .flat_map(|(flag, path)| [flag.to_owned(), text(path)])
        .collect()
    }

    /// A client that shows one.
    fn client(&self) -> Vec<String> {
        [
            ("--tls-ca", &self.pki.ca()),
            ("--tls-client-cert", &self.own.certificate),
            ("--tls-client-key", &self.own.key),
        ]
        .into_iter()
        .flat_map(|(flag, path)| [flag.to_owned(), text(path)])
        .collect()
    }

    /// Three services. All of the last one's log goes to where it says.
    fn services(&self, log: &std::path::Path) -> [Service; 3] {
        let server = self.server();
        let verifier = Service::verifier_with(&strs(&server));
        let draft_worker = Service::draft_worker_with("ngram", &strs(&server));
        let mut args = server;
        args.extend(self.client());
        args.extend(["--api-keys".to_owned(), text(&self.keys), "--log-format=json".to_owned()]);
        args.push(format!("--verifiers={}", verifier.address));
        args.push(format!("--draft-workers={}", draft_worker.address));
        let orchestrator = Service::start_logging("orchestrator", &strs(&args), log);
        [verifier, draft_worker, orchestrator]
    }
}

fn run(program: PathBuf, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(args).envs(variables.iter().copied());
    command.stdin(Stdio::null()).output().expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The binary of one service, built beside the command's.
fn service_binary(name: &str) -> PathBuf {
    foretoken().with_file_name(format!("foretoken-{name}{}", std::env::consts::EXE_SUFFIX))
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the binaries"]
fn the_command_calls_services_with_certificates_and_a_key() {
    let files = Files::new();
    let log = files.pki.path("log");
    let [verifier, _draft_worker, orchestrator] = files.services(&log);
    let server = format!("https://{}", orchestrator.address);
    let generate = |more: &[&str], variables: &[(&str, &str)]| {
        let client = files.client();
        let words =
            [&["generate", "--server", &server, "--json", "--max-tokens=4", "Hello"], more, &strs(&client)];
        run(foretoken(), &words.concat(), variables)
    };
    let key_file = text(&files.key);
    for output in [
        generate(&["--api-key-file", &key_file], &[]),
        generate(&[], &[("FORETOKEN_API_KEY_FILE", &key_file)]),
        generate(&[], &[("FORETOKEN_API_KEY", KEY)]),
        generate(&["--api-key", KEY], &[("FORETOKEN_API_KEY_FILE", "")]),
    ] {
        assert!(output.status.success(), "{}", stderr(&output));
        let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(record["output_tokens"], 4);
    }
    let none = generate(&[], &[]);
    assert!(!none.status.success() && stderr(&none).contains("API_KEY_MISSING"), "{}", stderr(&none));
    let wrong = generate(&["--api-key", "secret-9876543210"], &[]);
    assert!(!wrong.status.success() && stderr(&wrong).contains("API_KEY_INVALID"), "{}", stderr(&wrong));
    let both = generate(&["--api-key-file", &key_file], &[("FORETOKEN_API_KEY", KEY)]);
    assert!(!both.status.success() && stderr(&both).contains("give only one of them"), "{}", stderr(&both));

    // A conversation too.
    let client = files.client();
    let words = ["chat", "--server", &server, "--api-key-file", &key_file, "--max-tokens=4", "--quiet"];
    let mut chat = Command::new(foretoken())
        .args(words)
        .args(&client)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut chat.stdin.take().unwrap(), b"Hello\n").unwrap();
    let mut said = String::new();
    chat.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(chat.wait().unwrap().success() && !said.trim().is_empty(), "{said:?}");

    // Without certificates, or without TLS, it says what is missing.
    let bare = |address: &str, more: &[&str]| {
        let words = [&["generate", "--server", address, "Hello"], more].concat();
        stderr(&run(foretoken(), &words, &[]))
    };
    let ca = text(&files.pki.ca());
    assert!(bare(&server, &[]).contains("give --tls-ca"));
    assert!(bare(&orchestrator.address, &[]).contains("the server speaks TLS; give --tls-ca"));
    assert!(bare(&server, &["--tls-ca", &ca]).contains("give --tls-client-cert and --tls-client-key"));

    // Health is open to whoever has a certificate, by the probe that images have.
    for (service, at) in [("orchestrator", &orchestrator), ("target-verifier", &verifier)] {
        let probe = |words: &[&str], variables: &[(&str, &str)]| {
            let words = [&["healthcheck", "--address", &at.address], words].concat();
            run(service_binary(service), &words, variables)
        };
        let passed = probe(&strs(&client), &[]);
        assert!(passed.status.success(), "{}", stderr(&passed));
        let variables = [
            ("FORETOKEN_TLS_CA", ca.clone()),
            ("FORETOKEN_TLS_CLIENT_CERT", text(&files.own.certificate)),
            ("FORETOKEN_TLS_CLIENT_KEY", text(&files.own.key)),
            ("FORETOKEN_TLS_SERVER_NAME", "localhost".to_owned()),
        ];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let passed = probe(&[], &variables);
        assert!(passed.status.success(), "{}", stderr(&passed));
        let failed = probe(&["--tls-ca", &ca], &[]);
        assert!(
            !failed.status.success() && stderr(&failed).contains("--tls-client-cert"),
            "{}",
            stderr(&failed)
        );
        let failed = probe(&["--tls-server-name", "elsewhere.example"], &variables[..3]);
        assert!(
            !failed.status.success() && stderr(&failed).contains("is not for elsewhere.example"),
            "{}",
            stderr(&failed)
        );
    }

    // The log knows names, refusals and failed handshakes, and no key.
    drop(orchestrator);
    let log = std::fs::read_to_string(&log).unwrap();
    for told in [
        "\"alice\"",
        "API_KEY_MISSING",
        "API_KEY_INVALID",
        "the client shows no certificate",
        "the client does not speak TLS",
    ] {
        assert!(log.contains(told), "{told:?} is not in {log}");
    }
    assert!(!log.contains("0123456789") && !log.contains("9876543210"), "a key is shown");
}

#[test]
#[ignore = "needs the foretoken binary"]
fn files_that_cannot_be_used_end_a_service_at_its_start() {
    let files = Files::new();
    let (certificate, key) = (text(&files.own.certificate), text(&files.own.key));
    let other = text(&files.pki.loopback("other").key);
    let short = files.pki.path("short");
    std::fs::write(&short, "alice short").unwrap();
    let start = |kind: &str, words: &[&str]| {
        let output = run(foretoken(), &[&[kind, "--listen=127.0.0.1:0"], words].concat(), &[]);
        assert!(!output.status.success());
        stderr(&output)
    };
    let model = "--model=no/such/model.gguf";
    for (words, told) in [
        (vec![model, "--tls-cert", &certificate], "--tls-cert is given without --tls-key"),
        (
            vec![model, "--tls-cert", &certificate, "--tls-key", "no/such.key"],
            "--tls-key no/such.key: it cannot be read",
        ),
        (
            vec![model, "--tls-cert", &certificate, "--tls-key", &other],
            "it is not the key of the first certificate",
        ),
        (vec![model, "--tls-client-ca", &certificate], "--tls-client-ca is given without --tls-cert"),
    ] {
        for kind in ["target-verifier", "draft-worker"] {
            let error = start(kind, &words);
            assert!(error.contains(told), "{error}");
        }
    }
    let short = text(&short);
    for (words, told) in [
        (vec!["--tls-client-cert", certificate.as_str()], "--tls-client-cert is given without --tls-ca"),
        (vec!["--tls-ca", &key], "it holds no certificate"),
        (vec!["--api-keys", &short], "line 1: its key has 5 characters"),
        (vec!["--verifiers=https://127.0.0.1:1"], "give --tls-ca"),
    ] {
        let error = start("orchestrator", &words);
        assert!(error.contains(told), "{error}");
    }
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn services_that_the_command_starts_do_not_hear_of_it() {
    let model = text(&test_model());
    let words = ["generate", "--target", &model, "--json", "--max-tokens=4", "Hello"];
    let variables = [
        ("FORETOKEN_TLS_CERT", "no/such.pem"),
        ("FORETOKEN_TLS_KEY", "no/such.key"),
        ("FORETOKEN_TLS_CLIENT_CA", "no/such.pem"),
        ("FORETOKEN_TLS_CA", "no/such.pem"),
        ("FORETOKEN_TLS_CLIENT_CERT", "no/such.pem"),
        ("FORETOKEN_TLS_CLIENT_KEY", "no/such.key"),
        ("FORETOKEN_TLS_SERVER_NAME", "no.such"),
        ("FORETOKEN_API_KEYS", "no/such"),
        ("FORETOKEN_API_KEY_FILE", "no/such"),
        ("FORETOKEN_API_KEY", KEY),
    ];
    let output = run(foretoken(), &words, &variables);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL, FORETOKEN_TEST_VENV and the foretoken binary"]
fn python_calls_everything_with_a_certificate_and_a_key() {
    let files = Files::new();
    let [verifier, draft_worker, orchestrator] = files.services(&files.pki.path("log"));
    let variables = [
        ("TLS_CA", text(&files.pki.ca())),
        ("TLS_CERT", text(&files.own.certificate)),
        ("TLS_KEY", text(&files.own.key)),
        ("API_KEY", KEY.to_owned()),
    ];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let addresses = [&verifier, &draft_worker, &orchestrator].map(|service| service.address.as_str());
    let output = crate::clients::python([addresses[2], addresses[0], addresses[1]], &variables);
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("8 methods called"));

    let output = crate::clients::python([addresses[2], addresses[0], addresses[1]], &variables[..3]);
    assert!(!output.status.success() && stderr(&output).contains("UNAUTHENTICATED"), "{}", stderr(&output));
}
