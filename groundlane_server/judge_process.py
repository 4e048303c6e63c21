"""The judge process of the Python SDK: ``python -P -m groundlane_server.judge_process``."""

from groundlane_server import activate

if __name__ == "__main__":
    activate()
    from app.judge_server.sdk_process import main

    main()
