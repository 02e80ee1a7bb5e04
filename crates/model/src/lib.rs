//! Llama-family decoder over candle, from GGUF and safetensors.
