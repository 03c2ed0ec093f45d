//! The API against its own description, by a tool that makes up calls (schemathesis): no failure of ours, no answer that is not
//! described. `make contract` installs the tool and runs this; without it the test passes and says what it left out.

mod support;

use std::process::Command;

use support::upstream::{answer, upstream};
use support::{gateway, post};

/// Names the tool's program.
const TOOL: &str = "CONTRACT_TOOL";

/// What is held to the description. Left out is `positive_data_acceptance`: a schema cannot say that `confirm` repeats a parameter, and
/// takes `1.0` for a whole number.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,ignored_auth,\
                      allow_header_conformance,unsupported_method";

#[test]
fn made_up_calls_are_answered_as_described() {
    let Some(tool) = std::env::var_os(TOOL) else {
        eprintln!(
            "LEFT OUT: the API against made-up calls, for want of schemathesis; `make contract` installs and runs it"
        );
        return;
    };
    let receiver = upstream(|request| answer(if request.group() == "broken" { 500 } else { 200 }));
    let yaml = format!(
        "upstream: {}\nsources:\n  - path: /any/*\n    verify: {{ provider: none }}\n    key: headers.x-key\n",
        receiver.url()
    );
    let gateway = gateway(&yaml).start();
    for key in ["quiet", "broken", "a b", "caf\u{e9}"] {
        assert_eq!(gateway.client().send(&post("/any/x", b"{}").header("X-Key", key)).status, 200);
    }
    let base = format!("http://{}", gateway.admin);
    let document = gateway.dir().join("openapi.json");
    std::fs::write(&document, &gateway.get("/api/v1/openapi.json").body).unwrap();
    let status = Command::new(tool)
        .arg("run")
        .arg(&document)
        .args(["--url", &base, "--header", &format!("Authorization: Bearer {}", gateway.token())])
        // Changes need it without a body too, which a description cannot say.
        .args(["--header", "Content-Type: application/json"])
        .args([
            "--checks",
            CHECKS,
            "--continue-on-failure",
            "--no-color",
            "--seed",
            "1",
            "--phases",
            "examples,coverage,fuzzing",
        ])
        .args(["--max-examples", &std::env::var("CONTRACT_EXAMPLES").unwrap_or_else(|_| "50".to_owned())])
        .current_dir(gateway.dir())
        .status()
        .unwrap();
    assert!(status.success(), "see above; the gateway's log:\n{}", gateway.stderr());
}
