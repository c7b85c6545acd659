-- What a client took from the settings (a message's groups, the wait before a retry, which limits there are) holds
-- while the server's are those it knows: `revision` says which. Asked before anything is written, but after `recorded`:
-- a call that has been done is answered, whatever was declared since. '' is a call that takes nothing from them.
local function must_know(revision)
  local is = settings.revision
  if revision ~= '' and revision ~= is then
    error({ err = 'FQSETTINGS the settings are at revision ' .. is .. ', this client knows ' .. revision })
  end
end
