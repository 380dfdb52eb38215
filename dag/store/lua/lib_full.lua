-- needs: keys
-- First step of every verb that must pass on a server with full memory. Such a server refuses a script at its first command
-- that may use memory, but not after a delete; a function passes by its flag. See `redis/scripts.py`.
redis.call('HDEL', META, '-')
