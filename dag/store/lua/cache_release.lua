-- needs: schema, cache
-- on a full server: passes
-- End the claim of a node that has not computed its value.
--
-- KEYS      `scripted_keys`
-- ARGV[1]   tenant
-- ARGV[2]   key
-- ARGV[3]   claimant, `<run>|<node>`
-- Reply     1

end_claim_of(ARGV[1], ARGV[2], ARGV[3])
return 1
