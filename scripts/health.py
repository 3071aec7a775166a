"""Exit 0 if the server in this container is ready, 1 if not. For Docker's health check."""

import os
import sys
import urllib.error
import urllib.request


def body() -> int:
    url = f"http://127.0.0.1:{os.environ['PORT']}/health"
    try:
        with urllib.request.urlopen(url, timeout=4) as response:
            return int(response.status != 200)
    except (urllib.error.URLError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(body())
