from tests.engine.conftest import one_thread as one_thread
