-- What the server offers to a script, beside Lua 5.1. Run by tools/lint_lua.py over the assembled scripts.
std = "lua51+server"
stds.server = {
    read_globals = { "redis", "server", "KEYS", "ARGV", "cjson", "cmsgpack", "bit", "struct" },
}
max_line_length = 120
ignore = {
  "311/now", -- every script fixes the instant it works at, also those that do not use it
    "431", -- a function's parameter may be called as an argument of the script: an include cannot know them all
}
