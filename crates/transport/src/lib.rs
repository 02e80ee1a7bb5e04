//! What every Foretoken service shares: health, limits, drain, client channels.
