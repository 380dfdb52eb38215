-- needs: keys
-- What a verb does first that has to pass on a server whose memory is full. Such a server refuses a script at its first command
-- that may grow it, and lets it pass once something was deleted; a function passes by its flag. See `redis_scripts`.
redis.call('HDEL', META, '-')
