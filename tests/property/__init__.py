"""Properties: the engine on a real server against plain Python models of what it promises."""
