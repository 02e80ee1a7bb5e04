//! Chat templates: what the families' templates rely on, and templates that misbehave.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod common;

use std::time::{Duration, Instant};

use common::{byte_tokenizer_json, byte_vocab};
use foretoken_text::{ChatMessage, HfFiles, TextError, Tokenizer};
use serde_json::json;

fn render_with(template: &str, messages: &[ChatMessage], prompt: bool) -> Result<String, TextError> {
    let mut vocab = byte_vocab();
    vocab.chat_template = Some(template.to_owned());
    Tokenizer::from_gguf(vocab).unwrap().chat().unwrap().render(messages, prompt)
}

fn conversation() -> Vec<ChatMessage> {
    vec![ChatMessage::new("system", " Be <brief> & kind. "), ChatMessage::new("user", "Hi \"you\"\n")]
}

fn render(template: &str) -> String {
    render_with(template, &conversation(), true).unwrap()
}

fn error(template: &str) -> String {
    let error = render_with(template, &conversation(), true).unwrap_err();
    assert!(matches!(error, TextError::Chat { .. }));
    error.to_string()
}

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + \
                      '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}\
                      {% endif %}";

#[test]
fn a_plain_template_renders_and_its_marks_become_special_tokens() {
    let text = render_with(CHATML, &[ChatMessage::new("user", "a")], true).unwrap();
    assert_eq!(text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    let tokenizer = Tokenizer::from_gguf(byte_vocab()).unwrap();
    let ids = tokenizer.encode(&text, false).unwrap();
    assert_eq!((ids[0], ids[7], ids[9]), (260, 261, 260));
    let text = render_with(CHATML, &[ChatMessage::new("user", "a")], false).unwrap();
    assert!(text.ends_with("<|im_end|>\n"));
}

#[test]
fn whitespace_follows_transformers() {
    let template = "{%- if true %}\n    {%- for m in messages %}\n    {% if loop.first %}\nfirst\n    {% endif %}\n\
        {{ m.role }}\n{% endfor %}\n{% endif %}\n";
    assert_eq!(render(template), "first\nsystem\nuser\n");
}

#[test]
fn nothing_is_escaped_and_python_methods_work() {
    assert_eq!(render("{{ messages[0].content | trim }}"), "Be <brief> & kind.");
    assert_eq!(
        render("{{ messages[0]['content'].strip() }}|{{ messages[1].content.split('\"')[1] }}"),
        "Be <brief> & kind.|you"
    );
    assert_eq!(
        render(
            "{% if messages[0].content.startswith(' Be') and 'Hi' in messages[1].content %}yes{% endif %}"
        ),
        "yes"
    );
    assert_eq!(
        render("{{ messages[0].get('tool_calls', 'none') }} {{ messages[1].role.upper() }}"),
        "none USER"
    );
    assert_eq!(
        render(
            "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + 1 %}\
        {{ m.role }}{{ ns.n }}{% endfor %}"
        ),
        "user1system2"
    );
    assert_eq!(
        render(
            "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}"
        ),
        "system"
    );
    assert_eq!(render("{{ bos_token }}{{ eos_token }}"), "<|im_start|><|im_end|>");
    assert_eq!(
        render("{% if tools is none and documents is none and thinking is not defined %}plain{% endif %}"),
        "plain"
    );
    assert_eq!(render("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m('a') }}{{ messages | length }}"), "[a]2");
}

#[test]
fn idioms_of_the_families_work() {
    let messages = [
        ChatMessage::new("user", "Why?"),
        ChatMessage::new("assistant", "<think>\nhm\n</think>\n\nBecause."),
        ChatMessage::new("user", "<tool_response>x</tool_response>"),
    ];
    let rendered = |template: &str| render_with(template, &messages, true).unwrap();
    let reasoning = "{%- set c = messages[1].content %}{{- c.split('</think>')[-1].lstrip('\n') + '|' + \
                     c.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}";
    assert_eq!(rendered(reasoning), "Because.|hm");
    let last_query = "{%- set ns = namespace(multi=true, last=messages|length - 1) %}\
        {%- for message in messages[::-1] %}\
            {%- set index = (messages|length - 1) - loop.index0 %}\
            {%- set text = message.content %}\
            {%- set tool = text.startswith('<tool_response>') and text.endswith('</tool_response>') %}\
            {%- if ns.multi and message.role == \"user\" and text is string and not(tool) %}\
                {%- set ns.multi = false %}\
                {%- set ns.last = index %}\
            {%- endif %}\
        {%- endfor %}{{- ns.last }}";
    assert_eq!(rendered(last_query), "0");
    let headers = "{{- bos_token }}{%- for m in messages %}\
        {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('no turns') }}{%- endif %}\
        {%- if not loop.first and loop.previtem.role == 'user' %}{{- '^' }}{%- endif %}\
        {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}\
        {%- endfor %}";
    let start =
        "<|im_start|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>^<|start_header_id|>assistant";
    assert!(rendered(headers).starts_with(start), "{}", rendered(headers));
    let system = "{%- if messages[0]['role'] == 'system' %}\
        {%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}\
        {%- else %}{%- set system_message = \"\" %}{%- endif %}\
        {{- '[' ~ system_message ~ ']' ~ messages|length }}";
    assert_eq!(rendered(system), "[]3");
    assert_eq!(render(system), "[Be <brief> & kind.]1");
    assert_eq!(rendered("{{- messages | selectattr('role', 'equalto', 'user') | list | length }}"), "2");
    assert_eq!(rendered("{{- messages[1:] | map(attribute='role') | join(', ') }}"), "assistant, user");
}

#[test]
fn json_is_written_as_python_writes_it() {
    assert_eq!(
        render("{{ {'a': [1, 2.5, none, true], 'b': '<é>'} | tojson }}"),
        r#"{"a": [1, 2.5, null, true], "b": "<é>"}"#
    );
    assert_eq!(render("{{ [1, {'k': 'v'}] | tojson(indent=2) }}"), "[\n  1,\n  {\n    \"k\": \"v\"\n  }\n]");
    assert!(error("{{ 1 | tojson(colour=2) }}").contains("colour"));
}

#[test]
fn the_date_never_changes() {
    let template = "{% if strftime_now is defined %}\
        {{ strftime_now('%d %b %Y, %Y-%m-%d %H:%M:%S %A %B %%') }}{% endif %}";
    assert_eq!(render(template), "26 Jul 2024, 2024-07-26 12:00:00 Friday July %");
    assert!(error("{{ strftime_now('%Q') }}").contains("`%Q` is not supported"));
}

#[test]
fn a_template_says_why_it_refuses() {
    let template = "{% if messages[0].role == 'system' %}\n\
        {{ raise_exception('System role not supported') }}\n{% endif %}";
    assert_eq!(error(template), "chat template: System role not supported (line 2)");
    assert!(error("{% for %}").contains("line 1"));
    assert!(error("{{ nothing.at.all }}").contains("undefined"));
    assert!(error("{{ messages[0].content.no_such_method() }}").contains("no_such_method"));
    assert!(error("{% include 'secret.txt' %}").contains("secret.txt"));
}

#[test]
fn templates_that_never_end_are_stopped() {
    let start = Instant::now();
    let loops = "{% for a in range(90000) %}".repeat(6) + "x" + &"{% endfor %}".repeat(6);
    assert!(error(&loops).contains("fuel"));
    assert!(!error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").is_empty());
    assert!(!error("{{ ('x' * 1000000000000) | length }}").is_empty());
    assert!(!error("{{ range(10 ** 12) | length }}").is_empty());
    assert!(!error(&("{{ ".to_owned() + &"(".repeat(100_000))).is_empty());
    assert!(!error(&"{% if true %}".repeat(100_000)).is_empty());
    assert!(start.elapsed() < Duration::from_secs(20), "bounded, whatever the machine");
}

#[test]
fn the_templates_own_file_wins_and_lists_have_a_default() {
    let files = |template: serde_json::Value, own: Option<&str>| HfFiles {
        tokenizer_json: byte_tokenizer_json().to_string().into_bytes(),
        tokenizer_config_json: Some(json!({"chat_template": template}).to_string().into_bytes()),
        generation_config_json: None,
        chat_template_jinja: own.map(String::from),
    };
    let source = |files| Tokenizer::from_hf(files).unwrap().chat().map(|chat| chat.source().to_owned());
    assert_eq!(source(files(json!("config"), None)).as_deref(), Some("config"));
    assert_eq!(source(files(json!("config"), Some("own"))).as_deref(), Some("own"));
    let named = json!([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]);
    assert_eq!(source(files(named, None)).as_deref(), Some("d"));
    assert_eq!(source(files(json!([{"name": "rag", "template": "r"}]), None)), None);
    assert_eq!(source(files(json!(null), None)), None);
}
